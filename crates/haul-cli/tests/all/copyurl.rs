//! `copyurl` beside rclone, on a web server that sends parts, one that doesn't, and one that doesn't say how long its files are.

use haul_testkit::{
    folder::{self, noise},
    lab::Lab,
    peers,
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// A server of one file of 3 MB, by several ways. Counts requests by their first line and their range.
struct Site {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn start() -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let log = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = log.clone();
                thread::spawn(move || serve(stream, &log));
            }
        });
        Site { address, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn content() -> Vec<u8> {
    noise(5, 30 << 20)
}

/// Answers requests on one connection. An error ends it: the client went away.
fn serve(mut stream: TcpStream, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let all = content();
    loop {
        let first = lines.next()?.ok()?;
        let headers: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let range =
            headers.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
        log.lock().unwrap().push(format!("{first} {}", range.as_deref().unwrap_or("all")));
        let path = first.split(' ').nth(1)?;
        let modified = "Last-Modified: Fri, 13 Feb 2009 23:31:30 GMT\r\n";
        match path.split('?').next()? {
            "/moved" => {
                write!(stream, "HTTP/1.1 302 Found\r\nLocation: /dir/real%20name.bin?x=1\r\nContent-Length: 0\r\n\r\n")
                    .ok()?
            }
            "/missing" => write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone").ok()?,
            "/chunked" => {
                write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{modified}\r\n").ok()?;
                for piece in all[..100_000].chunks(7_000) {
                    write!(stream, "{:x}\r\n", piece.len()).ok()?;
                    stream.write_all(piece).ok()?;
                    stream.write_all(b"\r\n").ok()?;
                }
                stream.write_all(b"0\r\n\r\n").ok()?;
            }
            "/cut" => {
                write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").ok()?;
                return None;
            }
            "/endless" => {
                write!(stream, "HTTP/1.0 200 OK\r\n\r\nhello").ok()?;
                return None;
            }
            "/plain" => {
                let head = "Content-Disposition: attachment; filename=\"given name.txt\"\r\n";
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n{head}{modified}\r\n").ok()?;
                stream.write_all(&all[..100_000]).ok()?;
            }
            _ => {
                let facts = format!("Accept-Ranges: bytes\r\nETag: \"1\"\r\n{modified}");
                let whole = 0..all.len();
                let part = range
                    .as_deref()
                    .and_then(|range| range.split_once('-'))
                    .map_or(whole, |(from, to)| from.parse().unwrap()..to.parse::<usize>().unwrap() + 1);
                let status = match range {
                    None => "200 OK".to_owned(),
                    Some(_) => format!(
                        "206 Partial Content\r\nContent-Range: bytes {}-{}/{}",
                        part.start,
                        part.end - 1,
                        all.len()
                    ),
                };
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{facts}\r\n", part.len()).ok()?;
                stream.write_all(&all[part]).ok()?;
            }
        }
    }
}

fn both() -> Vec<PathBuf> {
    [PathBuf::from(HAUL)].into_iter().chain(peers::find("rclone")).collect()
}

#[test]
fn what_exists_stays_whatever_the_server_can() {
    let (site, lab) = (Site::start(), Lab::new(HAUL));
    let at = "@out/f";
    folder::write(&lab.path("out/f"), b"precious", 1_600_000_000_000_000_000);
    for path in ["/chunked", "/plain", "/dir/file.bin"] {
        for (flag, fails) in [("--immutable", true), ("--ignore-existing", false), ("--no-clobber", true)] {
            let ran = lab.haul(&["copyurl", flag, &site.url(path), at]);
            assert_eq!(
                (ran.code != 0, fs::read(lab.path("out/f")).unwrap()),
                (fails, b"precious".into()),
                "{}",
                ran.line
            );
        }
    }
    lab.haul(&["copyurl", "--existing", &site.url("/plain"), "@out/new"]).ok();
    assert!(!lab.path("out/new").exists());
}

#[test]
fn files_arrive_as_with_rclone() {
    let (site, lab) = (Site::start(), Lab::new(HAUL));
    let trees = both().into_iter().enumerate().map(|(n, program)| {
        let run = |args: &[&str]| lab.run(&program, &[&["copyurl", "--retries=1"][..], args].concat());
        let at = |name: &str| format!("@{n}/{name}");
        run(&[&site.url("/dir/file.bin?sign=a%2Fb"), &at("named.bin")]).ok();
        run(&[&site.url("/chunked"), &at("chunked")]).ok();
        run(&[&site.url("/plain"), &at("plain")]).ok();
        run(&["-a", &site.url("/moved"), &at("auto")]).ok();
        let ran = run(&["-a", "-p", "--header-filename", &site.url("/plain"), &at("auto")]).ok();
        assert_eq!(ran.out, "given name.txt\n", "{}", ran.line);
        assert_ne!(run(&["-a", "--header-filename", &site.url("/chunked"), &at("auto")]).code, 0);
        assert_ne!(run(&["-a", &site.url("/"), &at("auto")]).code, 0);
        assert_ne!(run(&["--no-clobber", &site.url("/plain"), &at("named.bin")]).code, 0);
        assert_ne!(run(&[&site.url("/missing"), &at("missing")]).code, 0);
        assert_ne!(run(&[&site.url("/plain")]).code, 0);
        let ran = run(&["--stdout", &site.url("/plain")]).ok();
        assert_eq!(ran.out, String::from_utf8_lossy(&content()[..100_000]), "{}", ran.line);
        let ran = run(&[&site.url("/chunked"), "-"]).ok();
        assert_eq!(ran.out, String::from_utf8_lossy(&content()[..100_000]), "{}", ran.line);
        folder::read(&lab.path(&n.to_string()))
    });
    let trees: Vec<folder::Tree> = trees.collect();
    let (file, auto) = (Path::new("named.bin"), Path::new("auto/real name.bin"));
    assert!(trees[0].contains_key(file) && trees[0].contains_key(auto), "{:?}", trees[0].keys());
    assert_eq!(fs::read(lab.path("0/named.bin")).unwrap(), content());
    if let [ours, theirs] = &trees[..] {
        folder::assert_same(&folder::files(ours), &folder::files(theirs), "copyurl");
    }
    let ran = lab.haul(&["copyurl", "htp://x/f?key=secret", "@0/f"]).code(2);
    assert_eq!(ran.err, "haul: \"htp://x/f\" isn't an http:// or https:// URL\n");
    // What was cut is no file (rclone takes it for one); what doesn't say where it ends may have been cut.
    assert_ne!(lab.haul(&["copyurl", &site.url("/cut"), "@0/cut", "--retries=1"]).code, 0);
    let ran = lab.haul(&["copyurl", &site.url("/endless"), "@0/endless"]).code(1);
    assert!(ran.err.contains("the server tells neither how long this is nor where it ends"), "{}", ran.err);
    assert!(!lab.path("0/endless").exists() && !lab.path("0/cut").exists());
}

#[test]
fn a_large_file_comes_in_parts_and_is_asked_for_once() {
    let (site, lab) = (Site::start(), Lab::new(HAUL));
    lab.haul(&["copyurl", "-a", &site.url("/dir/large.bin"), "@dst", "--multi-thread-streams=4"]).ok();
    assert_eq!(fs::read(lab.path("dst/large.bin")).unwrap(), content());
    let requests = std::mem::take(&mut *site.requests.lock().unwrap());
    let whole = requests.iter().filter(|line| line.ends_with(" all")).count();
    assert!(whole == 1 && requests.len() > 1, "{requests:?}");
    // It is replaced whatever is there, as rclone has it; -u compares times.
    fs::write(lab.path("dst/large.bin"), "mine").unwrap();
    lab.haul(&["copyurl", &site.url("/dir/large.bin"), "@dst/large.bin", "-u"]).ok();
    assert_eq!(fs::read(lab.path("dst/large.bin")).unwrap(), b"mine");
    lab.haul(&["copyurl", &site.url("/dir/large.bin"), "@dst/large.bin", "-n"]).ok();
    assert_eq!(fs::read(lab.path("dst/large.bin")).unwrap(), b"mine");
    lab.haul(&["copyurl", &site.url("/dir/large.bin"), "@dst/large.bin"]).ok();
    assert_eq!(fs::read(lab.path("dst/large.bin")).unwrap(), content());
}

#[test]
fn many_addresses_are_read_from_a_list() {
    let (site, lab) = (Site::start(), Lab::new(HAUL));
    let rows = [
        format!("{},in/a.bin", site.url("/x?1")),
        format!("\"{}\",\"in/b, c.bin\"", site.url("/chunked")),
        site.url("/moved"),
        format!("{},", site.url("/plain")),
    ];
    fs::write(lab.path("list.csv"), rows.join("\n")).unwrap();
    let trees = both().into_iter().enumerate().map(|(n, program)| {
        lab.run(&program, &["copyurl", "--urls", "@list.csv", &format!("@{n}")]).ok();
        folder::files(&folder::read(&lab.path(&n.to_string())))
    });
    let trees: Vec<folder::Tree> = trees.collect();
    assert_eq!(trees[0].len(), 4, "{:?}", trees[0].keys());
    if let [ours, theirs] = &trees[..] {
        folder::assert_same(ours, theirs, "copyurl --urls");
    }
    // One that fails doesn't stop the others; nothing leaves the destination, and no name is given twice.
    fs::write(lab.path("bad.csv"), format!("{}\n{}\n", site.url("/missing?secret"), site.url("/plain"))).unwrap();
    let ran = lab.haul(&["copyurl", "--urls", "@bad.csv", "@bad", "--retries=1"]);
    assert!(ran.code != 0 && lab.path("bad/plain").exists() && !ran.err.contains("secret"), "{}", ran.err);
    fs::write(lab.path("out.csv"), format!("{},../out\n", site.url("/plain"))).unwrap();
    let ran = lab.haul(&["copyurl", "--urls", "@out.csv", "@bad"]).code(1);
    assert!(ran.err.contains("\"../out\" can't be a path"), "{}", ran.err);
    fs::write(lab.path("two.csv"), format!("{},a\n{},a\n", site.url("/x?1"), site.url("/x?2"))).unwrap();
    let ran = lab.haul(&["copyurl", "--urls", "@two.csv", "@two"]);
    assert!(ran.code != 0 && ran.err.contains("two addresses have this name"), "{}", ran.err);
}
