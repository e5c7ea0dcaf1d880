-- haul @VERSION@, for Lmod: `make modulefiles` fills in where it is.
help([[haul moves data between clouds, clusters and disks. Type haul help, or man haul.
haul-mpi, where it is installed, needs the MPI that it was built with: load that too.]])
whatis("Name: haul")
whatis("Version: @VERSION@")
whatis("Description: Moves data between clouds, clusters and disks")
family("haul")
local root = "@PREFIX@"
prepend_path("PATH", pathJoin(root, "bin"))
prepend_path("MANPATH", pathJoin(root, "share/man"))
-- An empty part stands for the system's own pages.
append_path("MANPATH", "")
