"""haul-mpi on real Open MPI, MPICH and Slurm: trees compared attribute by attribute with rsync's, ranks killed and stopped, a full
disk, a source that changes. `mpi.py TARGET openmpi mpich [TEST...]`; tests/mpi.sh builds what it runs."""
import concurrent.futures, os, random, shutil, signal, stat, subprocess, sys, tempfile, time

TARGET, WORDS = sys.argv[1], sys.argv[2:]
MAKES = [word for word in WORDS if word in ("openmpi", "mpich")]
ONLY = [word for word in WORDS if word not in MAKES]
BASE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
ROOT = os.geteuid() == 0
MPIRUN = {"openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"], "mpich": ["mpiexec.mpich"]}


def binary(make):
    return os.path.join(TARGET, f"haul-mpi.{make}")


def start(make, ranks, *words, launch=(), **options):
    # In a session of its own, by which remains of a killed launcher are found.
    return subprocess.Popen([*MPIRUN[make], *launch, "-n", str(ranks), binary(make), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, start_new_session=True, **options)


def run(make, ranks, *words, code=0):
    text, ended = finish(start(make, ranks, *words))
    assert ended in (code, None), f"exit code {ended}, not {code}:\n{text}"
    return text


def finish(started, seconds=120):
    """What a job printed, and its exit code. Open MPI's launcher may wait for itself in its own end (4.1.4, `PMIx_server_finalize`)
    when all ranks are gone: it is ended then, and there is no code."""
    deadline, gone = time.monotonic() + seconds, 0
    while True:
        try:
            return started.communicate(timeout=5)[0], started.returncode
        except subprocess.TimeoutExpired:
            gone = 0 if ranks_of(started) else gone + 1
            if gone == 2:
                started.kill()
                return started.communicate()[0], None
            if time.monotonic() > deadline:
                raise


def ranks_of(launcher):
    """The processes of haul-mpi that a launcher started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as text:
                fields = text.read().rsplit(")", 1)[1].split()
            if b"haul-mpi." in os.readlink(f"/proc/{pid}/exe").encode() and fields[0] != "Z" and under(int(pid), launcher.pid):
                found.append(int(pid))
        except OSError:
            pass
    return sorted(found)


def under(pid, above):
    while pid > 1:
        if pid == above:
            return True
        with open(f"/proc/{pid}/stat") as text:
            pid = int(text.read().rsplit(")", 1)[1].split()[1])
    return False


def facts(top):
    """All that is known of each thing in a folder, by its path."""
    all, first = {}, {}
    for folder, dirs, files in os.walk(os.fsencode(top)):
        dirs.sort()
        for name in [b"", *dirs, *sorted(files)]:
            path = os.path.join(folder, name) if name else folder
            below = os.path.relpath(path, os.fsencode(top))
            st = os.lstat(path)
            content = None
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as file:
                    content = file.read() if st.st_size < 1 << 28 else (st.st_size, st.st_blocks * 512 < st.st_size, pieces(file))
            elif stat.S_ISLNK(st.st_mode):
                content = os.readlink(path)
            xattrs = {x: os.getxattr(path, x, follow_symlinks=False) for x in os.listxattr(path, follow_symlinks=False)}
            same = first.setdefault((st.st_dev, st.st_ino), below)
            all[below] = (st.st_mode, st.st_uid, st.st_gid, st.st_rdev, st.st_mtime_ns, xattrs, same, content)
    return all


def pieces(file):
    """Where a sparse file holds data, and what."""
    end, at, runs = os.fstat(file.fileno()).st_size, 0, []
    while at < end:
        try:
            at = os.lseek(file.fileno(), at, os.SEEK_DATA)
        except OSError:
            break
        hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
        runs.append((at, os.pread(file.fileno(), min(hole - at, 1 << 22), at)))
        at = hole
    return runs


def alike(one, other, times=True, left=0):
    """`left`: the number of partial files that killed ranks may leave."""
    a, b = facts(one), facts(other)
    partial = [path for path in b if os.path.basename(path).startswith(b".haul-")]
    if len(partial) <= left:
        b = {path: fact for path, fact in b.items() if path not in partial}
    if not times:
        a, b = ({path: (*fact[:4], *fact[5:]) for path, fact in all.items()} for all in (a, b))
    for path in sorted(a.keys() | b.keys()):
        if a.get(path) != b.get(path):
            shown = [fact and fact[:-1] for fact in (a.get(path), b.get(path))]
            raise AssertionError(f"{path!r}: {shown[0]} and {shown[1]}")
    assert a


def tree(top, dirs=24, files=20, flat=1500, big=80):
    """A folder with all that a file system can hold."""
    os.makedirs(f"{top}/a/b/c")
    os.makedirs(f"{top}/empty/deep")
    os.makedirs(f"{top}/flat")
    for d in range(dirs):
        os.makedirs(f"{top}/d{d}/e")
        for f in range(files):
            write(f"{top}/d{d}/f{f}", os.urandom(f * 137))
            os.utime(f"{top}/d{d}/f{f}", ns=(5, 1_500_000_000_123_456_789 + f))
    for f in range(flat):
        write(f"{top}/flat/x{f}", b"z" * (f % 7000))
    write(f"{top}/big", os.urandom(1 << 20) * big)
    with open(f"{top}/sparse", "wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 29)
        file.write(b"middle" * 1000)
    os.link(f"{top}/big", f"{top}/a/biglink")
    os.link(f"{top}/d1/f3", f"{top}/d2/link")
    os.link(f"{top}/d1/f3", f"{top}/a/b/link")
    os.symlink("nowhere", f"{top}/a/dangling")
    os.mkfifo(f"{top}/a/fifo")
    write(f"{top}/a/\xff\x01 name".encode("latin-1"), b"odd")
    os.chmod(f"{top}/d3/f4", 0o4711)
    os.chmod(f"{top}/d4", 0o555)
    try:
        os.setxattr(f"{top}/d5/f6", "user.hello", b"world")
        os.setxattr(f"{top}/d6", "user.dir", b"\0\1")
    except OSError:
        print("    without extended attributes, which this file system hasn't got")
    if ROOT:
        os.chown(f"{top}/d3/f5", 1234, 4321)
        os.chown(f"{top}/d7", 4321, 1234)
        os.mknod(f"{top}/a/null", stat.S_IFCHR | 0o640, os.makedev(1, 3))
    subprocess.run(["setfacl", "-m", "u:1234:r,g:77:rwx", f"{top}/d8/f1", f"{top}/d8"], stderr=subprocess.DEVNULL, check=False)
    # Old times: rsync takes two of one second for the same.
    for number, (folder, dirs, files) in enumerate(os.walk(os.fsencode(top), topdown=False)):
        for name in (*dirs, *files, b"."):
            os.utime(os.path.join(folder, name), ns=(5, 1_000_000_000_000_000_001 + number), follow_symlinks=False)


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def oracle(src, dst):
    subprocess.run(["rsync", "-aHAX", "--sparse", f"{src}/", f"{dst}/"], check=True)


def hidden(top):
    return [name for _, _, files in os.walk(top) for name in files if name.startswith(".haul-")]


def copies_all_that_rsync_does(make, at):
    tree(f"{at}/src")
    oracle(f"{at}/src", f"{at}/want")
    for ranks in (1, 2, 5, 16) if make == "openmpi" else (3,):
        text = run(make, ranks, "dcp", "-p", f"{at}/src", f"{at}/got")
        assert f"on {ranks} ranks" in text and "Hard links: 3" in text, text
        alike(f"{at}/want", f"{at}/got")
        assert not hidden(f"{at}/got")
        shutil.rmtree(f"{at}/got")


def syncs_checks_and_deletes(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    tree(src, big=70)
    text = run(make, 3, "sync", "-n", src, dst)
    assert f"would be copied: {src}/d1/f7" in text and not os.path.exists(dst), text
    run(make, 3, "sync", src, dst)
    assert "different data: 0" in run(make, 3, "check", src, dst)
    text = run(make, 3, "sync", src, dst)
    assert "  Files: 0" in text, text
    # Differences in content, size, attributes and type; missing and extra entries.
    write(f"{dst}/d1/f7", b"other")
    os.chmod(f"{dst}/d1/f8", 0o600)
    os.unlink(f"{dst}/d2/f1")
    os.makedirs(f"{dst}/d2/f2.d/deep")
    write(f"{dst}/d2/f2.d/deep/x", b"")
    os.unlink(f"{dst}/d9/f1")
    os.makedirs(f"{dst}/d9/f1/in the way")
    shutil.rmtree(f"{dst}/d10")
    write(f"{dst}/d10", b"in the way")
    with open(f"{dst}/big", "r+b") as file:
        file.seek(65 << 20)
        file.write(b"!")
    os.utime(f"{dst}/big", ns=(5, os.stat(f"{src}/big").st_mtime_ns))
    text = run(make, 3, "check", src, dst, code=1)
    assert f"differs: {src}/d1/f7" in text and f"differs: {src}/big\n" in text and f"only in the source: {src}/d10" in text, text
    text = run(make, 3, "sync", "-n", "-D", "-c", src, dst)
    assert "would be deleted" in text and all(f"would be copied: {src}/{name}\n" in text for name in ("d1/f7", "big")), text
    assert os.path.exists(f"{dst}/d2/f2.d/deep/x")
    run(make, 3, "sync", "-D", "-c", src, dst)
    alike(src, dst)
    text = run(make, 3, "delete", f"{dst}/d2", f"{dst}/big")
    assert not os.path.exists(f"{dst}/d2") and not os.path.exists(f"{dst}/big") and os.path.exists(f"{dst}/d1"), text


def an_empty_source_empties_nothing_unless_told(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    os.makedirs(src)
    run(make, 2, "sync", "-D", src, dst)
    os.makedirs(f"{dst}/dir")
    write(f"{dst}/dir/x", b"x")
    write(f"{dst}/precious", b"x")
    line = f"Refused to delete what is in {dst}: source {src} is empty (--allow-empty-source if that is intended)"
    for words in (("-n",), ()):
        text = run(make, 2, "sync", "-D", *words, src, dst, code=23)
        assert text.count("error: ") == 1 and f"haul-mpi sync: error: {line}\n" in text and "deleted: " not in text, text
        assert sorted(os.listdir(dst)) == ["dir", "precious"] and os.listdir(f"{dst}/dir") == ["x"]
    run(make, 2, "sync", src, dst)
    run(make, 2, "sync", "--delete", "--allow-empty-source", src, dst)
    assert not os.listdir(dst)


def a_link_is_not_taken_for_a_directory(make, at):
    """A symlink in the place of a directory is replaced, and the contents of its target stay."""
    for name in ["src/bar", "src/foo", "dst/bar"]:
        os.makedirs(f"{at}/{name}")
    write(f"{at}/src/bar/a", b"bar")
    write(f"{at}/src/foo/a", b"foo!")
    shutil.copy2(f"{at}/src/bar/a", f"{at}/dst/bar/a")
    os.symlink("bar", f"{at}/dst/foo")
    text, ended = finish(start(make, 3, "sync", f"{at}/src", f"{at}/dst"))
    assert ended != 0 and "a symbolic link has the place of this directory" in text, text
    with open(f"{at}/dst/bar/a", "rb") as file:
        assert file.read() == b"bar"
    run(make, 3, "sync", "-D", f"{at}/src", f"{at}/dst")
    alike(f"{at}/src", f"{at}/dst")


def what_is_in_the_place_of_a_file_is_deleted_as_all_else(make, at):
    """Directories in the place of files of all types are deleted: after everything is copied, counted and logged, and never after an error."""
    src, dst = f"{at}/src", f"{at}/dst"
    os.makedirs(f"{src}/many")
    for name in ("small", "first", "many/x7", "many/x550"):
        write(f"{src}/{name}", name.encode())
    for f in range(600):
        write(f"{src}/many/x{f}", b"%d" % f)
    for name in ("large", "large first"):
        with open(f"{src}/{name}", "wb") as file:
            file.truncate(65 << 20)
    os.symlink("nowhere", f"{src}/link")
    os.mkfifo(f"{src}/fifo")
    os.link(f"{src}/first", f"{src}/further")
    os.link(f"{src}/large first", f"{src}/large further")
    blocked = ["small", "first", "further", "large", "large first", "link", "fifo", "many/x7", "many/x550"]
    for name in blocked:
        os.makedirs(f"{dst}/{name}/deep")
        write(f"{dst}/{name}/deep/x", b"x")
    # A file in the place of a directory is replaced, too.
    os.makedirs(f"{src}/dir/below")
    write(f"{dst}/dir", b"in the way")
    text = run(make, 3, "sync", "-n", "-D", src, dst)
    gone = [name for folder in blocked for name in (folder, f"{folder}/deep", f"{folder}/deep/x")] + ["dir"]
    for name in gone:
        assert f"would be deleted: {dst}/{name}\n" in text, f"{name}: {text}"
    assert f"Deleted: {len(gone)}\n" in text, text
    # An error keeps all of them.
    os.symlink("loop", f"{src}/loop")
    text = run(make, 3, "sync", "-L", "-D", src, dst, code=23)
    assert "nothing was deleted, since there were errors" in text, text
    for name in blocked:
        assert os.path.exists(f"{dst}/{name}/deep/x") or name == "link", name
    assert f"error: {src}/small: was not copied: a directory is in its place, and was not deleted\n" in text, text
    os.unlink(f"{src}/loop")
    shutil.rmtree(f"{dst}/dir")
    write(f"{dst}/dir", b"in the way")
    text = run(make, 3, "sync", "-D", "--log", f"{at}/log", src, dst)
    assert f"Deleted: {len(gone)}\n" in text, text
    alike(src, dst)
    logged = "".join(open(f"{at}/log.{rank}").read() for rank in range(3))
    assert logged.count('"event":"deleted"') == len(gone), logged
    # A single file replaces no directory.
    text = run(make, 2, "sync", "-D", f"{src}/small", f"{dst}/many", code=1)
    line = f"Refused to replace the directory {dst}/many by {src}/small, which isn't one: {dst}/many/small copies it into that"
    assert f"haul-mpi sync: {line}\n" in text, text
    alike(src, dst)


def links_to_an_earlier_copy(make, at):
    src, old, new = f"{at}/src", f"{at}/old", f"{at}/new"
    tree(src, flat=700, big=70)
    run(make, 2, "sync", src, old)
    before = facts(old)
    write(f"{src}/d1/f7", b"other")
    os.chmod(f"{src}/d1/f8", 0o600)
    write(f"{src}/flat/more", b"more")
    text = run(make, 3, "sync", "--link-dest", old, src, new)
    alike(src, new)
    assert facts(old) == before, "the earlier copy has changed"
    def linked(name):
        a, b = os.lstat(f"{old}/{name}"), os.lstat(f"{new}/{name}")
        return stat.S_ISREG(a.st_mode) and a.st_ino == b.st_ino
    files = {os.fsdecode(name) for name, fact in facts(new).items() if stat.S_ISREG(fact[0])}
    assert {name for name in files if name != "flat/more" and not linked(name)} == {"d1/f7", "d1/f8"}, text
    assert not hidden(new) and "  Linked to files of --link-dest: " in text, text
    # A copy without links gets them, and then nothing is left to do.
    run(make, 2, "sync", src, f"{at}/plain")
    run(make, 3, "sync", "--link-dest", old, src, f"{at}/plain")
    assert os.stat(f"{at}/plain/big").st_ino == os.stat(f"{old}/big").st_ino
    text = run(make, 3, "sync", "--link-dest", old, src, f"{at}/plain")
    assert "--link-dest: 0" in text and "  Files: 0" in text, text
    alike(src, f"{at}/plain")


def walked(paths):
    """A list as dwalk --output writes it."""
    width = -(-(max(map(len, paths)) + 1) // 8) * 8
    numbers = lambda *all: b"".join(n.to_bytes(8, "big") for n in all)
    names = numbers(4, 1, 8, 0, 0, len(paths), width) + b"root".ljust(8, b"\0") + numbers(0)
    return names + b"".join(path.encode().ljust(width, b"\0") + numbers(*range(10)) for path in paths)


def copies_what_a_list_names(make, at):
    src = f"{at}/src"
    tree(src, big=70)
    wanted = ["big", "a/biglink", "d1/f3", "d2/link", "a/dangling", "a/fifo", "empty", "d9"] + [f"flat/x{f}" for f in range(600)]
    write(f"{at}/plain", "".join(f"{name}\n" for name in wanted).encode())
    subprocess.run(["rsync", "-aHAX", "--sparse", "--no-r", "--dirs", f"--files-from={at}/plain", f"{src}/", f"{at}/want/"], check=True)
    shutil.copystat(src, f"{at}/want")
    write(f"{at}/walked", walked([f"{src}/{name}" for name in wanted]))
    write(f"{at}/nul", "".join(f"./{name}\0" for name in reversed(wanted)).encode())
    for list, ranks in (("plain", 1), ("walked", 3), ("nul", 5)):
        run(make, ranks, "dcp", "-p", "-i", f"{at}/{list}", src, f"{at}/{list}-got")
        alike(f"{at}/want", f"{at}/{list}-got")
    write(f"{at}/plain", b"d1/f3\nd1/none\na/dangling/x\n")
    text = run(make, 2, "dcp", "--input", f"{at}/plain", src, f"{at}/some", code=1)
    assert f"{src}/d1/none: " in text and f"{src}/a/dangling: " in text and os.path.exists(f"{at}/some/d1/f3"), text
    write(f"{at}/plain", b"/etc/passwd\n")
    text = run(make, 2, "dcp", "--input", f"{at}/plain", src, f"{at}/not", code=1)
    assert f"haul-mpi dcp: {at}/plain: /etc/passwd: not below {src}" in text and not os.path.exists(f"{at}/not"), text


def a_small_file_costs_few_calls(make, at):
    """System calls don't depend on the machine. Those by which threads wait are left out, and the one by which a debug build checks descriptors."""
    if not shutil.which("strace"):
        return "strace is not installed"
    src, dirs, files = f"{at}/src", 20, 2000
    for d in range(dirs):
        os.makedirs(f"{src}/{d}")
        for f in range(files // dirs):
            write(f"{src}/{d}/{f}", b"%d" % f * 2000)
    # Without a launcher: MPI isn't started.
    traced = subprocess.run(["strace", "-f", "-qq", "-c", "-o", f"{at}/calls", binary(make), "dcp", src, f"{at}/dst"], capture_output=True,
                            text=True, timeout=60, check=False)
    if traced.returncode != 0:
        return f"strace can't trace here: {traced.stderr}"
    alike(src, f"{at}/dst", times=False)
    with open(f"{at}/calls") as lines:
        rows = [line.split() for line in lines]
    calls = {row[-1]: int(row[3]) for row in rows if len(row) > 4 and row[3].isdigit()}
    each = sum(count for name, count in calls.items() if name not in ("futex", "epoll_wait", "sched_yield", "fcntl", "poll", "total")) / files
    assert calls["lgetxattr"] < 10 * dirs, calls
    assert each < 20, f"{each} calls for each file: {calls}"


def one_file_and_several_sources(make, at):
    write(f"{at}/one", b"1")
    os.makedirs(f"{at}/two/x")
    os.symlink("one", f"{at}/link")
    os.makedirs(f"{at}/dst")
    run(make, 2, "dcp", "-p", f"{at}/one", f"{at}/two", f"{at}/link", f"{at}/dst")
    assert sorted(os.listdir(f"{at}/dst")) == ["link", "one", "two"] and os.readlink(f"{at}/dst/link") == "one"
    os.chmod(f"{at}/one", 0o6755)
    run(make, 2, "dcp", f"{at}/one", f"{at}/renamed")
    assert open(f"{at}/renamed", "rb").read() == b"1" and os.stat(f"{at}/renamed").st_mode & 0o7777 == 0o755
    os.chmod(f"{at}/two/x", 0o750)
    run(make, 2, "dcp", f"{at}/two", f"{at}/three")
    assert os.stat(f"{at}/three/x").st_mode & 0o7777 == 0o750 and os.stat(f"{at}/three").st_mode & 0o7777 == 0o755
    text = run(make, 2, "dcp", f"{at}/none", f"{at}/dst", code=1)
    assert f"haul-mpi dcp: {at}/none: no such file or directory" in text, text


# Files that a killed rank began before they were recorded are only found by their owner's number, in a later run, so few may be left.
LEFT = 8


def a_killed_rank_costs_no_finished_work(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    tree(src, big=300)
    for _ in range(8):
        started = start(make, 4, "dcp", "-p", src, dst)
        # At a random moment of about a second.
        deadline = time.monotonic() + random.uniform(0.05, 0.9)
        while time.monotonic() < deadline and started.poll() is None:
            time.sleep(0.005)
        ranks = ranks_of(started)
        try:
            os.kill(random.choice(ranks), signal.SIGKILL)
        except (ProcessLookupError, IndexError):
            pass  # It was done already.
        try:
            started.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            # Open MPI's launcher may wait for ever for ranks of which one died as MPI began, though they are gone.
            assert not any(map(lives, ranks))
            started.kill()
            started.communicate()
        # The launcher doesn't wait for those that it ends.
        assert wait(lambda: not any(map(lives, ranks)))
        state = f"{at}/state-home/haul/mpi"
        if started.returncode == 0 or (ranks and os.path.exists(f"{dst}/d1") and not os.listdir(state)):
            # The job was complete, though its launcher hadn't ended. It is repeated into another directory.
            alike(src, dst, left=LEFT)
            dst += "x"
    if os.path.exists(dst):
        run(make, 4, "dcp", "-p", src, dst)
        alike(src, dst, left=LEFT)
    else:
        dst = dst[:-1]
    assert len(hidden(dst)) <= LEFT, hidden(dst)


def what_a_killed_job_left_can_be_deleted(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    tree(src, dirs=12, flat=10, big=600)
    for _ in range(10):
        started = start(make, 3, "dcp", "-p", src, dst)
        while not (os.path.isdir(dst) and any(".big." in name or ".biglink." in name for name in hidden(dst))):
            assert started.poll() is None
            time.sleep(0.001)
        ranks = ranks_of(started)
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        finish(started)
        assert wait(lambda: not any(map(lives, ranks)))
        left = hidden(dst)
        run(make, 2, "delete", dst)
        assert not os.path.exists(dst)
        if left:
            return None
    raise AssertionError("nothing was ever left")


def a_rank_that_hangs_costs_its_leases(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    tree(src, big=400)
    started = start(make, 4, "dcp", "-p", "--patience", "2", src, dst)
    while not os.path.exists(f"{dst}/d1"):
        assert started.poll() is None
        time.sleep(0.002)
    # Rank 0 gives out the work: the others may stop. Which is which the environment tells.
    others = [pid for pid in ranks_of(started) if rank(pid) == 2]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    text, ended = finish(started)
    for pid in others:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    assert "has said nothing for 2 seconds" in text or ended == 0, text
    # The launcher wakes it to end it: a block that it was about to write may come late, and move a time.
    alike(src, dst, times=False)


def bushy(top, dirs=60, files=150, size=4000):
    """Many small files beside directories, so that a lost rank has several in progress."""
    for d in range(dirs):
        os.makedirs(f"{top}/d{d}/below")
        for f in range(files):
            write(f"{top}/d{d}/f{f}", b"%d/%d " % (d, f) * (size // 8))
        write(f"{top}/d{d}/below/x", b"x")


def ranks_that_hang_in_the_middle_of_directories_lose_no_file(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    bushy(src)
    met = 0
    for _ in range(10):
        # One file can't be copied, for a code that isn't 0.
        os.makedirs(f"{dst}/d0/f0/in the way")
        started = start(make, 3, "sync", "--patience", "2", src, dst)
        while len(os.listdir(dst)) < 3:
            assert started.poll() is None
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.1))
        by_rank = {rank(pid): pid for pid in ranks_of(started)}
        others = [pid for number, pid in by_rank.items() if number in (1, 2)]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        assert wait(lambda: not lives(by_rank[0]), 60)
        # MPI_Abort has them ended. Where they were stopped after the end of the job, the launcher waits for them.
        ended = wait(lambda: not any(map(lives, others)), 5)
        for pid in others:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        text, code = finish(started)
        shutil.rmtree(f"{dst}/d0/f0")
        shutil.copyfile(f"{src}/d0/f0", f"{dst}/d0/f0")
        # They are woken to be ended: a file may appear once more, and move the time of its directory.
        alike(src, dst, times=False, left=LEFT)
        if ended and "has said nothing for 2 seconds" in text:
            met += 1
            # MPI_Abort has the code that the job would have had.
            assert code in (23, None), f"{code}: {text}"
        if met == 2:
            return None
        shutil.rmtree(dst)
    raise AssertionError("no rank was ever stopped before the end")


def until_it_copies(started, dst):
    while not os.path.isdir(dst) or len(os.listdir(dst)) < 2:
        assert started.poll() is None
        time.sleep(0.002)


def a_job_that_is_suspended_goes_on(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    bushy(src)
    met = 0
    for _ in range(10):
        started = start(make, 3, "dcp", "-p", "--patience", "2", src, dst)
        until_it_copies(started, dst)
        time.sleep(random.uniform(0, 0.1))
        ranks = ranks_of(started)
        for how, after in ((signal.SIGSTOP, 3.5), (signal.SIGCONT, 0)):
            for pid in filter(lives, ranks):
                os.kill(pid, how)
            time.sleep(after)
            met += how == signal.SIGSTOP and unfinished(at)
        text, ended = finish(started)
        assert ended in (0, None) and "warning" not in text, text
        # After the pause no rank knew which leases the others still had, and yet none continued with a lost one.
        alike(src, dst)
        if met == 2:
            return None
        shutil.rmtree(dst)
    raise AssertionError("the job was never suspended before its end")


def unfinished(at):
    return bool(os.listdir(f"{at}/state-home/haul/mpi"))


def a_rank_that_comes_back_leaves_what_others_have(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    bushy(src, dirs=150)
    met = 0
    for _ in range(12):
        started = start(make, 3, "dcp", "-p", "--patience", "1", src, dst)
        until_it_copies(started, dst)
        by_rank = {rank(pid): pid for pid in ranks_of(started)}
        others = [pid for number, pid in by_rank.items() if number in (1, 2)]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        lines, lost = [], 0
        while lost < 2 and (line := started.stdout.readline()):
            lines.append(line)
            lost += "has said nothing" in line
        for pid in filter(lives, others):
            os.kill(pid, signal.SIGCONT)
        text, ended = finish(started)
        text = "".join(lines) + text
        assert ended in (0, None), text
        back = "is back" in text
        alike(src, dst, times=back, left=LEFT)
        met += back
        if met == 2:
            return None
        shutil.rmtree(dst)
    raise AssertionError("no rank came back before the end")


# Stops threads for good, as a file system does that doesn't answer: their process lives on. Whoever traces threads has to bury them.
FREEZE = """import ctypes, os, sys
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
SEIZE, INTERRUPT, ALL = 0x4206, 0x4207, 0x40000000
for tid in map(int, sys.argv[1:]):
    for what in (SEIZE, INTERRUPT):
        if ptrace(what, tid, None, None):
            sys.exit(os.strerror(ctypes.get_errno()))
print("frozen", flush=True)
while True:
    try:
        os.waitpid(-1, ALL)
    except ChildProcessError:
        break
"""


def threads_that_hang_in_a_file_system_cost_their_leases(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    bushy(src)
    for _ in range(10):
        started = start(make, 3, "dcp", "-p", "--hang", "4", "--patience", "2", src, dst)
        until_it_copies(started, dst)
        pid = next(pid for pid in ranks_of(started) if rank(pid) == 2)
        tids = []
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/comm") as name:
                if name.read().startswith(("haul-disk", "haul-list")):
                    tids.append(tid)
        freezer = subprocess.Popen([sys.executable, "-c", FREEZE, *tids], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        frozen = freezer.stdout.readline()
        text, ended = finish(started)
        freezer.kill()
        _, why = freezer.communicate()
        if not frozen and "not permitted" in why:
            return "threads can't be stopped by themselves here"
        assert ended in (0, None), f"{ended}: {text}"
        alike(src, dst, left=LEFT)
        if "a file system has not answered rank 2 for 4 seconds: others try" in text:
            return None
        shutil.rmtree(dst)
    raise AssertionError("no thread was ever stopped before the end")


# Starts what is to run on another node here, with a folder for what processes of a node share.
OTHER_NODE = """#!/bin/sh
export TMPDIR=$(dirname "$0")/$1
mkdir -p $TMPDIR
shift
exec sh -c "$*"
"""


def on_two_nodes(make, at):
    if make != "openmpi":
        return "it is only known how to play nodes for Open MPI"
    src, dst = f"{at}/src", f"{at}/dst"
    tree(src, dirs=10, flat=100, big=100)
    write(f"{at}/start", OTHER_NODE.encode())
    os.chmod(f"{at}/start", 0o755)
    trace = ["strace", "-f", "-qq", "-e", "trace=fdatasync", "-o"] if shutil.which("strace") else None
    def traced(name, *launch):
        under = ["sh", "-c", f'exec {" ".join(trace)} {at}/{name}.$OMPI_COMM_WORLD_RANK "$0" "$@"'] if trace else []
        started = subprocess.run([*MPIRUN[make], *launch, "-n", "2", *under, binary(make), "dcp", "-p", src, dst],
                                 capture_output=True, text=True, timeout=120, check=False)
        assert started.returncode == 0, started
        alike(src, dst)
        forced = [0, 0]
        for number in (0, 1) if trace else ():
            with open(f"{at}/{name}.{number}") as lines:
                forced[number] = sum("fdatasync(" in line for line in lines)
        shutil.rmtree(dst)
        return sum(forced)
    two = traced("two", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "--mca", "plm_rsh_agent", f"{at}/start",
                 "--host", "nodea:1,nodeb:1")
    one = traced("one")
    if not trace:
        return "what is forced out can't be seen without strace"
    # What one node wrote of a file that another publishes mustn't be in its memory alone.
    assert two >= 100 << 20 >> 26 and one == 0, (two, one)


def a_job_that_lives_on_without_ranks_is_whole(make, at):
    if make != "openmpi":
        return "its launcher ends the job when a rank dies"
    src, dst = f"{at}/src", f"{at}/dst"
    bushy(src, files=250)
    met = 0
    for _ in range(10):
        started = start(make, 3, "dcp", "-p", "--patience", "2", src, dst, launch=["--enable-recovery"])
        until_it_copies(started, dst)
        time.sleep(random.uniform(0, 0.1))
        for pid in ranks_of(started):
            if rank(pid) in (1, 2):
                os.kill(pid, signal.SIGKILL)
        text, _ = finish(started)
        if "Walked" in text:
            alike(src, dst, left=LEFT)
            met += "rank 2 has said nothing for 2 seconds" in text
        if met == 2:
            return None
        shutil.rmtree(dst, ignore_errors=True)
        shutil.rmtree(f"{at}/state-home", ignore_errors=True)
    raise AssertionError("no rank was ever killed before the end")


def rank(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as text:
            env = dict(part.split(b"=", 1) for part in text.read().split(b"\0") if b"=" in part)
    except OSError:
        return None
    return int(env.get(b"OMPI_COMM_WORLD_RANK", env.get(b"PMI_RANK", b"-1")))


def a_full_disk_ends_it_and_deletes_nothing(make, at):
    if not ROOT:
        return "only root may mount a small disk"
    src, dst = f"{at}/src", f"{at}/small"
    os.makedirs(src)
    os.makedirs(dst)
    for f in range(40):
        write(f"{src}/f{f}", os.urandom(1 << 20))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", dst], check=False, stderr=subprocess.DEVNULL)
    if mounted.returncode:
        return "a small disk can't be mounted"
    try:
        write(f"{dst}/extra", b"stays")
        text = run(make, 3, "sync", "-D", src, dst, code=11)
        assert "no space is left: type the same again to go on when there is" in text, text
        assert os.path.exists(f"{dst}/extra")
        # One file that finds no room says it, however many do.
        errors = [line for line in text.splitlines() if "error:" in line]
        assert len(errors) == 2 and f"error: {dst}/f" in errors[0] and "nothing was deleted" in errors[1], text
        assert all(os.path.getsize(f"{dst}/{name}") == 1 << 20 for name in os.listdir(dst) if name != "extra"), os.listdir(dst)
        try:
            write(f"{dst}/fill", bytes(16 << 20))
        except OSError:
            pass
        text = run(make, 2, "sync", src, f"{dst}/new", code=11)
        assert f"haul-mpi sync: {dst}/new: No space left on device" in text and not os.path.exists(f"{dst}/new"), text
        os.unlink(f"{dst}/fill")
        subprocess.run(["mount", "-o", "remount,size=64m", dst], check=True)
        text = run(make, 3, "sync", "-D", src, dst)
        assert "Goes on with a run" in text and "Unchanged: 0" not in text, text
        assert sorted(os.listdir(dst)) == sorted(os.listdir(src))
    finally:
        subprocess.run(["umount", "-l", dst], check=False)


def a_source_that_changes(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    tree(src, big=200)
    started = start(make, 4, "dcp", "-p", src, dst)
    count, until = 0, time.monotonic() + 60
    while started.poll() is None and time.monotonic() < until:
        count += 1
        with open(f"{src}/big", "r+b") as file:
            file.write(count.to_bytes(8, "little"))
        write(f"{src}/flat/x7", b"%d" % count * 500)
        try:
            os.unlink(f"{src}/d11/f{count % 20}")
        except OSError:
            pass
    text, ended = finish(started)
    assert ended in (0, 1, None), text
    for line in text.splitlines():
        assert "error:" not in line or " changed" in line or "d11" in line or "became shorter" in line, line
    assert not hidden(dst), hidden(dst)
    run(make, 4, "sync", "-D", src, dst)
    alike(src, dst)


def a_signal_ends_it_and_the_next_run_goes_on(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    tree(src, big=600)
    started = start(make, 3, "dcp", "-p", src, dst)
    while not os.path.exists(f"{dst}/d1"):
        assert started.poll() is None
        time.sleep(0.002)
    for pid in ranks_of(started):
        os.kill(pid, signal.SIGTERM)
    text, ended = finish(started)
    assert ended == 0 or "stopped by a signal: type the same again to go on" in text, text
    if "stopped by a signal" in text:
        assert ended in (20, None), ended
        text = run(make, 3, "dcp", "-p", src, dst)
        assert "Goes on with a run of this job" in text, text
    alike(src, dst)
    assert not hidden(dst)


def a_job_that_goes_on_copies_what_it_had_not_come_to(make, at):
    """dcp replaces files also if size and time are the same."""
    src, dst = f"{at}/src", f"{at}/dst"
    bushy(src)
    os.makedirs(dst)
    for _ in range(10):
        # The earlier contents.
        shutil.copytree(src, f"{dst}/src")
        for folder, _, files in os.walk(f"{dst}/src"):
            for name in files:
                path = os.path.join(folder, name)
                st = os.stat(path)
                write(path, b"#" * st.st_size)
                os.utime(path, ns=(5, st.st_mtime_ns))
        time.sleep(0.1)
        def came_to():
            with open(f"{dst}/src/d7/f7", "rb") as file:
                return file.read(1) != b"#"
        started = start(make, 3, "dcp", "-p", src, dst)
        while not came_to():
            assert started.poll() is None
            time.sleep(0.001)
        for pid in ranks_of(started):
            os.kill(pid, signal.SIGTERM)
        text, _ = finish(started)
        if "stopped by a signal" in text:
            text = run(make, 3, "dcp", "-p", src, dst)
            assert "Goes on with a run of this job" in text and "Unchanged: 0" not in text, text
            alike(src, f"{dst}/src")
            return None
        shutil.rmtree(f"{dst}/src")
        shutil.rmtree(f"{at}/state-home")
    raise AssertionError("no job was ever ended before its end")


def nobody_needs_to_read_what_is_printed(make, at):
    """Without a launcher, which would read it."""
    src = f"{at}/src"
    bushy(src)
    with open("/dev/full", "w") as full:
        ended = subprocess.run([binary(make), "dcp", "-v", src, f"{at}/one"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    read, closed = os.pipe()
    os.close(read)
    ended = subprocess.run([binary(make), "dcp", "--progress", "1", src, f"{at}/two"], stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(closed)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    alike(src, f"{at}/one", times=False)
    alike(src, f"{at}/two", times=False)
    assert not os.listdir(f"{at}/state-home/haul/mpi")


def another_directory_of_that_name_is_not_gone_on_with(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    os.makedirs(src)
    write(f"{src}/README", b"src's")
    # A job with an error isn't complete.
    os.symlink("nowhere", f"{src}/dangling")
    run(make, 2, "dcp", "-L", src, dst, code=1)
    text = run(make, 2, "dcp", "-L", src, dst, code=1)
    assert "Goes on with a run of this job" in text and os.listdir(dst) == ["README"], text
    os.rename(dst, f"{at}/was")
    os.makedirs(dst)
    write(f"{dst}/README", b"notes")
    text = run(make, 2, "dcp", "-L", src, dst, code=1)
    assert f"Starts anew: {dst} isn't the directory that an unfinished run of this job wrote to" in text and "Goes on" not in text, text
    with open(f"{dst}/README", "rb") as kept, open(f"{dst}/src/README", "rb") as copied:
        assert (kept.read(), copied.read()) == (b"notes", b"src's")
    text = run(make, 2, "dcp", "-L", src, dst, code=1)
    assert "Goes on with a run of this job" in text and sorted(os.listdir(dst)) == ["README", "src"], text


def what_can_not_work_is_refused(make, at):
    src, dst = f"{at}/src", f"{at}/dst"
    os.makedirs(f"{src}/x")
    os.makedirs(dst)
    env = {**os.environ, "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}
    for name in list(env):
        if name.startswith(("OMPI_", "PMI")):
            del env[name]
    alone = subprocess.run([binary(make), "dcp", src, dst], env=env, capture_output=True, text=True, timeout=60)
    assert alone.returncode == 1 and "Refused to do everything 4 times over" in alone.stderr and not os.listdir(dst), alone
    # Refuses jobs that would delete their source, and jobs that would never end.
    os.makedirs(f"{at}/q/src/deep")
    os.symlink("q/src", f"{at}/link")
    for words, why in ((("sync", "-D", f"{at}/q/src", f"{at}/q"), "the source is in it"), (("dcp", f"{at}/q", f"{at}/link/new"), "it is in the source")):
        text = run(make, 2, *words, code=1)
        assert f"Refused to copy {words[-2]} to {words[-1]}: {why}" in text and os.listdir(f"{at}/q/src") == ["deep"], text
    # Missing sources are named, and no parents of the destination are created.
    for words, line in ((("delete", f"{at}/none", src), f"{at}/none: No such file or directory"),
                        (("dcp", src, f"{at}/no/new"), f"{at}/no/new: can't be made, since {at}/no isn't a directory that is there")):
        text = run(make, 2, *words, code=1)
        assert f"haul-mpi {words[0]}: {line}" in text and os.path.exists(f"{src}/x") and not os.path.exists(f"{at}/no"), text
    # No directory is made that has a remote's name.
    remote, ended = finish(start(make, 2, "sync", src, "r:b/dir", cwd=at))
    assert ended in (1, None) and "haul fleet spreads copies to and from remotes over nodes" in remote and not os.path.exists(f"{at}/r:b"), remote
    other = f"{at}/haul-mpi.{make}"
    with open(binary(make), "rb") as file:
        content = file.read()
    assert content.count(b"haul-mpi 0.1.0\n") >= 1
    write(other, content.replace(b"haul-mpi 0.1.0\n", b"haul-mpi 0.1.9\n"))
    os.chmod(other, 0o755)
    text = mixed(make, [binary(make)], [other], "dcp", src, dst)
    assert "Refused to start: rank 1 is haul-mpi 0.1.9, and this is haul-mpi 0.1.0" in text, text
    if ROOT:
        for folder, line in ((dst, "isn't the directory that the first node sees"), (src, "is another directory than on the first node")):
            away = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {folder} && exec "$0" "$@"', binary(make)]
            text = mixed(make, [binary(make)], away, "sync", src, dst)
            if "unshare" in text or "mount:" in text:
                return "a rank can't be given another file system here"
            assert line in text, text
        # A mount that one rank alone sees: the others would find the directory empty, and delete the files.
        os.makedirs(f"{dst}/x")
        for folder in (src, dst):
            away = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {folder}/x && exec "$0" "$@"', binary(make)]
            line = f"Refused to start: nothing is mounted at {folder}/x on {os.uname().nodename}, but something is for another rank: mount it there, too"
            for first, second in (([binary(make)], away), (away, [binary(make)])):
                text = mixed(make, first, second, "sync", "-D", src, dst)
                assert f"haul-mpi sync: {line}\n" in text, text
            three = [*MPIRUN[make], "-n", "1", binary(make), "check", src, dst, ":", "-n", "1", *away, "check", src, dst, ":", "-n", "1",
                     binary(make), "check", src, dst]
            ended = subprocess.run(three, capture_output=True, text=True, timeout=60, check=False)
            assert ended.returncode != 0 and f"haul-mpi check: {line}\n" in ended.stdout + ended.stderr, ended
        os.rmdir(f"{dst}/x")
        farfs = os.path.join(TARGET, "debug/farfs")
        if os.path.exists("/dev/fuse") and os.path.exists(farfs):
            # A file system that doesn't answer, for longer than any rank waits.
            os.mkfifo(f"{at}/held")
            held = os.open(f"{at}/held", os.O_RDWR)
            away = ["unshare", "-m", "sh", "-c", f'''{farfs} {at}/behind {src} --delay 600000000 < {at}/held > {at}/mounted &
                    until grep -q farfs {at}/mounted; do sleep 0.05; done; exec "$0" "$@"''', binary(make)]
            text = mixed(make, [binary(make)], away, "sync", "--patience", "2", src, dst)
            os.close(held)
            assert "Refused to start: rank 1 has not seen source and destination within 2 seconds" in text, text
    assert not os.listdir(dst), os.listdir(dst)


def what_is_mounted_when_it_is_looked_at_is_waited_for(make, at):
    if not ROOT:
        return "only root may mount"
    autofs = os.path.join(os.path.dirname(__file__), "../crates/haul-cli/tests/autofs.py")
    src, dst, other, there = f"{at}/src", f"{at}/dst", f"{at}/other", f"{at}/there"
    for folder in (f"{src}/x", dst, other, there):
        os.makedirs(folder)
    for n in range(40):
        write(f"{src}/{n}", b"%d" % n)
        write(f"{other}/{n}", b"other %d" % n)
    fixed = ["unshare", "-m", "sh", "-c", f'mount --bind {other} {src}/x && exec "$0" "$@"', binary(make)]
    # Destination and source/x are there once somebody goes into them.
    auto = ["unshare", "-m", "sh", "-c", f'''mount --bind {dst} {there} || exit
            {sys.executable} {autofs} {dst} {there} > {at}/one & {sys.executable} {autofs} {src}/x {other} > {at}/two &
            until cat {at}/one {at}/two | grep -c ready | grep -q 2; do kill -0 $! || exit; sleep 0.05; done; "$0" "$@"''', binary(make)]
    for first, second in ((fixed, auto), (auto, fixed)):
        for file in ("one", "two"):
            write(f"{at}/{file}", b"")
        write(f"{dst}/extra", b"")
        command = [*MPIRUN[make], "-n", "1", *first, "sync", "-D", src, dst, ":", "-n", "1", *second, "sync", "-D", src, dst]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if "can't be mounted here" in ended.stderr or "unshare" in ended.stderr:
            return "no automounter can run here"
        assert ended.returncode == 0, ended
        assert sorted(os.listdir(dst)) == sorted(os.listdir(src)) and sorted(os.listdir(f"{dst}/x")) == sorted(os.listdir(other)), ended
        shutil.rmtree(f"{dst}/x")


def mixed(make, first, second, *words):
    command = [*MPIRUN[make], "-n", "1", *first, *words, ":", "-n", "1", *second, *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0, ended
    return ended.stdout + ended.stderr


def under_slurm(make, at):
    which = shutil.which
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    tools = [which(tool, path=path) for tool in ("munged", "slurmctld", "slurmd", "srun", "sbatch")]
    if not all(tools) or not ROOT:
        return "Slurm is not installed, or this isn't root"
    munged, slurmctld, slurmd, srun, sbatch = tools
    etc, state = f"{at}/etc", f"{at}/state"
    os.makedirs(etc)
    os.makedirs(state)
    write(f"{etc}/munge.key", os.urandom(128))
    os.chmod(f"{etc}/munge.key", 0o400)
    socket = f"{at}/munge.socket"
    host = os.uname().nodename.split(".")[0]
    cores = os.cpu_count()
    with open(f"{etc}/slurm.conf", "w") as conf:
        conf.write(f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={socket}
CryptoType=crypto/munge
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation={state}
SlurmdSpoolDir={state}/d
SlurmctldPidFile={state}/ctld.pid
SlurmdPidFile={state}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
""")
    env = {**os.environ, "SLURM_CONF": f"{etc}/slurm.conf", "PATH": path}
    log = open(f"{at}/slurm.log", "w")
    begun = []
    def begin(*command):
        begun.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True))
    try:
        os.chmod(at, 0o755)
        begin(munged, "-F", "--force", f"--key-file={etc}/munge.key", f"--socket={socket}", f"--pid-file={at}/munge.pid",
              f"--log-file={at}/munge.log", f"--seed-file={at}/munge.seed")
        wait(lambda: os.path.exists(socket))
        begin(slurmctld, "-D", "-i")
        begin(slurmd, "-D", "-N", host)
        def idle():
            told = subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True, check=False)
            return told.stdout.strip() in ("idle", "mixed", "allocated")
        if not wait(idle, 30):
            return "Slurm's daemons don't come up here: " + open(f"{at}/slurm.log").read()[-400:]
        kinds = subprocess.run([srun, "--mpi=list"], env=env, capture_output=True, text=True, check=False)
        kinds = kinds.stdout + kinds.stderr
        kind = "pmix" if make == "openmpi" and "pmix" in kinds else "pmi2"
        src, dst = f"{at}/src", f"{at}/dst"
        tree(src, dirs=8, flat=300, big=70)
        step = [srun, "-n", "4", "--overcommit", f"--mpi={kind}", binary(make), "dcp", "-p", "--progress", "60", src, dst]
        ended = subprocess.run(step, env=env, capture_output=True, text=True, timeout=100, check=False)
        text = ended.stdout + ended.stderr
        if "Refused to do everything 4 times over" in text:
            assert not os.path.exists(dst)
            return f"this {make} doesn't know Slurm's {kind}: refused, as it must be"
        assert ended.returncode == 0 and "on 4 ranks" in text, f"{ended.returncode} {text}"
        alike(src, dst)
        # Tasks that MPI can't count refuse, instead of each doing all.
        ended = subprocess.run([srun, "-n", "4", "--overcommit", "--mpi=none", binary(make), "dcp", src, f"{at}/other"], env=env,
                               capture_output=True, text=True, timeout=100, check=False)
        assert ended.returncode != 0 and not os.path.exists(f"{at}/other"), ended
        if make == MAKES[0]:
            fleets_under_slurm(at, env)
    finally:
        for process in reversed(begun):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        log.close()


def fleets_under_slurm(at, env):
    """The lines of the manual that start workers of `haul fleet`, and what a signal makes of them. Needs no MPI."""
    haul = os.path.abspath(f"{TARGET}/debug/haul")
    if not os.path.exists(haul):
        return
    env = {**env, "PATH": f"{os.path.dirname(haul)}:{env['PATH']}", "HOME": at}
    def said(*command, code=0):
        ended = subprocess.run(command, env=env, cwd=at, capture_output=True, text=True, timeout=100, check=False)
        assert ended.returncode == code, ended
        return ended.stdout
    def job(name, *more):
        said(haul, "fleet", "create", f"{at}/src", f"{at}/{name}-dst", "--exclude=/big", "--exclude=/sparse", *more, "--at", f"{at}/{name}")
        return f"{at}/{name}"
    def is_over():
        return not said("squeue", "-h")
    with open(os.path.join(os.path.dirname(__file__), "../docs/clusters.md"), encoding="utf-8") as page:
        array = next(line for line in page if line.startswith("sbatch -a 1-32 -c 8 "))
    array = array.replace("1-32 -c 8", "1-3 -c 1 -o worker-%a.out").replace("/scratch/$USER/jobs/run42", job("array"))
    said("sh", "-c", array)
    assert wait(is_over, 60), said("squeue")
    for number in (1, 2, 3):
        with open(f"{at}/worker-{number}.out", encoding="utf-8") as output:
            text = output.read()
            assert "Complete: " in text, text
    assert said("srun", "-n", "2", "--overcommit", "haul", "fleet", "work", job("step")).count("Complete: ") == 2
    # One that is stopped is queued again.
    script = said(haul, "sbatch", "--nodes", "1", "--cores", "1", "--memory", "0", "fleet", "work", job("stopped", "--bwlimit=30k"))
    write(f"{at}/job.sh", script.encode())
    number = said("sbatch", "--parsable", "job.sh").strip()
    assert wait(lambda: os.path.exists(f"{at}/stopped-dst/d0"), 60), said("scontrol", "show", "job", number)
    said("scancel", "--signal=TERM", number)
    restarted = lambda: "Restarts=1" in said("scontrol", "show", "job", number)
    assert wait(restarted, 60), said("scontrol", "show", "job", number)
    said("scancel", number)
    assert ", 0 leased, 0 workers" in said(haul, "fleet", "report", f"{at}/stopped", code=5)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as text:
            return text.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait(event, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if event():
            return True
        time.sleep(0.05)
    return False


TESTS = [what_can_not_work_is_refused, copies_all_that_rsync_does, syncs_checks_and_deletes, an_empty_source_empties_nothing_unless_told,
         a_link_is_not_taken_for_a_directory, what_is_in_the_place_of_a_file_is_deleted_as_all_else, nobody_needs_to_read_what_is_printed,
         a_job_that_goes_on_copies_what_it_had_not_come_to, links_to_an_earlier_copy, copies_what_a_list_names,
         a_small_file_costs_few_calls, one_file_and_several_sources, a_killed_rank_costs_no_finished_work,
         what_a_killed_job_left_can_be_deleted, a_rank_that_hangs_costs_its_leases, ranks_that_hang_in_the_middle_of_directories_lose_no_file,
         threads_that_hang_in_a_file_system_cost_their_leases, a_job_that_lives_on_without_ranks_is_whole,
         a_job_that_is_suspended_goes_on, a_rank_that_comes_back_leaves_what_others_have, a_full_disk_ends_it_and_deletes_nothing,
         what_is_mounted_when_it_is_looked_at_is_waited_for,
         a_source_that_changes, on_two_nodes, a_signal_ends_it_and_the_next_run_goes_on, another_directory_of_that_name_is_not_gone_on_with,
         under_slurm]
# Tests that depend on the MPI and run on the second one, too.
SECOND = [copies_all_that_rsync_does, a_killed_rank_costs_no_finished_work, a_rank_that_hangs_costs_its_leases,
          ranks_that_hang_in_the_middle_of_directories_lose_no_file, a_job_that_is_suspended_goes_on, what_can_not_work_is_refused,
          under_slurm]


def attempt(make, name):
    """Runs one test and reports its result; true unless it failed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=BASE, ignore_cleanup_errors=True) as at:
        os.environ["XDG_STATE_HOME"] = f"{at}/state-home"
        try:
            why = globals()[name](make, at)
            came = f"skipped: {why}" if why else "done"
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            came = f"FAILED: {type(error).__name__}: {error}"
    print(f"{make}: {name.replace('_', ' ')}: {came} ({time.monotonic() - began:.1f} s)", flush=True)
    return not came.startswith("FAILED")


def main():
    tests = [(make, test.__name__) for number, make in enumerate(MAKES) for test in (SECOND if number else TESTS)]
    tests = [(make, name) for make, name in tests if not ONLY or name in ONLY]
    # They wait much of their time. One process at a time for the daemons of Slurm, which have their ports.
    with concurrent.futures.ProcessPoolExecutor(1 if ONLY else 2) as pool:
        under_way = [pool.submit(attempt, *test) for test in tests if test[1] != "under_slurm"]
        passed = [test.result() for test in under_way]
    passed += [attempt(*test) for test in tests if test[1] == "under_slurm"]
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
