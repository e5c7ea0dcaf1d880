"""All cases, in the order in which they run. Each module holds one experiment, and says where it comes from."""

from cases import backblaze, clouds, cluster, disks, dvc, flat, hpc, lan, logins, mass, minio, mpi, nas, site, ssh


def all_cases(quick):
    """Every case, at full or at reduced size."""
    modules = (site, lan, disks, nas, minio, hpc, clouds, logins, backblaze, dvc, flat, mass, mpi, cluster, ssh)
    return [case for module in modules for case in module.cases(quick)]


def names():
    return [case.name for case in all_cases(quick=True)]
