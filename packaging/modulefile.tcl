#%Module1.0
# haul @VERSION@, for Environment Modules: `make modulefiles` fills in where it is.
proc ModulesHelp { } {
    puts stderr "haul moves data between clouds, clusters and disks. Type haul help, or man haul."
    puts stderr "haul-mpi, where it is installed, needs the MPI that it was built with: load that too."
}
module-whatis "haul @VERSION@: moves data between clouds, clusters and disks"
conflict haul
set root "@PREFIX@"
prepend-path PATH "$root/bin"
prepend-path MANPATH "$root/share/man"
# An empty part stands for the system's own pages.
append-path MANPATH ""
