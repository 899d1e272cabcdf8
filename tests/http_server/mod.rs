//! A small HTTP/1.1 server on loopback whose answers a test decides.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// A header's value; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    cut_after: Option<usize>,
    sized: bool,
    pace: Option<Duration>,
}

impl Reply {
    pub fn new(status: u16, body: &[u8]) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.to_vec(),
            cut_after: None,
            sized: true,
            pace: None,
        }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Closes the connection after so many bytes of the body.
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.cut_after = Some(bytes);
        self
    }

    /// Sends 64 KiB at a time, with a pause after each.
    pub fn paced(mut self, pause: Duration) -> Self {
        self.pace = Some(pause);
        self
    }

    /// Sends no Content-Length: the body ends where the connection does.
    pub fn without_length(mut self) -> Self {
        self.sized = false;
        self
    }

    /// `file`, or the range of it that is asked for, unless If-Range names
    /// another `etag`.
    pub fn file(request: &Request, file: &[u8], etag: Option<&str>) -> Self {
        let same = request.header("if-range").is_none_or(|v| Some(v) == etag);
        let range = request.header("range").filter(|_| same);
        let range = range.and_then(|r| r.strip_prefix("bytes=")?.split_once('-'));
        let reply = match range {
            None => Self::new(200, file),
            Some((first, last)) => {
                let first: usize = first.parse().unwrap();
                let last = last.parse().unwrap_or(file.len().saturating_sub(1));
                if first >= file.len() {
                    let all = format!("bytes */{}", file.len());
                    return Self::new(416, b"").with("Content-Range", &all);
                }
                let range = format!("bytes {first}-{last}/{}", file.len());
                Self::new(206, &file[first..=last]).with("Content-Range", &range)
            }
        };
        match etag {
            Some(etag) => reply.with("ETag", etag),
            None => reply,
        }
    }
}

pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    sent: Arc<AtomicU64>,
}

impl Server {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Bytes of bodies sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

/// Starts a server; `answer` gets each request and its number, from 0. It ends
/// with the test process.
pub fn serve(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::new(AtomicU64::new(0));
    let (log, count, answer) = (requests.clone(), sent.clone(), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (log, count, answer) = (log.clone(), count.clone(), answer.clone());
            std::thread::spawn(move || {
                let Some(request) = read_request(&stream) else {
                    return;
                };
                let n = {
                    let mut log = log.lock().unwrap();
                    log.push(request.clone());
                    log.len() - 1
                };
                let reply = answer(&request, n);
                let end = reply.cut_after.unwrap_or(reply.body.len());
                count.fetch_add(end as u64, Ordering::SeqCst);
                // A client that hangs up is not this server's trouble.
                let _ = write_reply(&stream, &reply, end);
            });
        }
    });
    Server {
        address,
        requests,
        sent,
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    Some(Request { path, headers })
}

fn write_reply(mut stream: &TcpStream, reply: &Reply, end: usize) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {} Status\r\n", reply.status)?;
    for (name, value) in &reply.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    if reply.sized {
        write!(stream, "Content-Length: {}\r\n", reply.body.len())?;
    }
    write!(stream, "Connection: close\r\n\r\n")?;
    for piece in reply.body[..end].chunks(64 << 10) {
        stream.write_all(piece)?;
        std::thread::sleep(reply.pace.unwrap_or_default());
    }
    Ok(())
}
