//! Proxy before a server, which knows where a request ends: HTTP/1.1, or the protocol of PostgreSQL.
//!
//! It counts requests, and does to each one what the test says: delays it, repeats it, delivers it late, or
//! loses it or its answer. Faults of a network thus hit whole requests, where protocols break.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Request that passes the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Number among all requests, from 0.
    pub number: u64,
    /// Method of HTTP, or `SQL`.
    pub verb: String,
    /// Path of HTTP, or the text of the statement.
    pub target: String,
}

/// Treatment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is delivered and answered.
    Pass,
    /// It is delivered after this time.
    Delay(Duration),
    /// It is lost, and the connection breaks.
    Lose,
    /// It is delivered; its answer is lost, and the connection breaks.
    LoseAnswer,
    /// The connection breaks; the request arrives after this time.
    Late(Duration),
    /// It is delivered twice; the first answer is returned.
    Twice,
    /// It is not delivered; the proxy answers with this status and body of HTTP.
    Answer(u16, &'static str),
}

/// Address of the server behind the proxy.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// HTTP server on 127.0.0.1.
    Http(u16),
    /// PostgreSQL server on this Unix socket.
    Postgres(PathBuf),
}

type Decide = dyn Fn(&Seen) -> Fate + Send + Sync;

struct Shared {
    upstream: Upstream,
    decide: Mutex<Arc<Decide>>,
    seen: Mutex<Vec<Seen>>,
    number: AtomicU64,
    /// Requests that are still to arrive.
    late: AtomicU64,
    is_open: AtomicBool,
}

/// Running proxy on 127.0.0.1.
pub struct Proxy {
    shared: Arc<Shared>,
    /// Port.
    pub port: u16,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_open.store(false, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Proxy {
    /// Starts a proxy that passes everything.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(upstream: Upstream) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            upstream,
            decide: Mutex::new(Arc::new(|_: &Seen| Fate::Pass)),
            seen: Mutex::default(),
            number: AtomicU64::new(0),
            late: AtomicU64::new(0),
            is_open: AtomicBool::new(true),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if !accepting.is_open.load(Ordering::SeqCst) {
                    return;
                }
                let shared = accepting.clone();
                if let Ok(client) = client {
                    std::thread::spawn(move || drop(serve(&shared, client)));
                }
            }
        });
        Ok(Self { shared, port })
    }

    /// Decides what happens to each request from now on.
    pub fn set(&self, decide: impl Fn(&Seen) -> Fate + Send + Sync + 'static) {
        *self.shared.decide.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(decide);
    }

    /// Passes everything from now on.
    pub fn pass(&self) {
        self.set(|_| Fate::Pass);
    }

    /// Returns the requests so far, and forgets them.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until every late request has arrived.
    pub fn settle(&self) {
        let began = Instant::now();
        while self.shared.late.load(Ordering::SeqCst) > 0 && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Connection to the server.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

fn connect(upstream: &Upstream) -> io::Result<Box<dyn Stream>> {
    Ok(match upstream {
        Upstream::Http(port) => {
            let stream = TcpStream::connect(("127.0.0.1", *port))?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Upstream::Postgres(socket) => Box::new(UnixStream::connect(socket)?),
    })
}

fn serve(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut out = client.try_clone()?;
    let mut input = BufReader::new(client);
    let mut server = connect(&shared.upstream)?;
    let is_http = matches!(shared.upstream, Upstream::Http(_));
    if !is_http {
        start_session(&mut input, &mut out, &mut *server)?;
    }
    loop {
        let request = if is_http { http_request(&mut input)? } else { sql_request(&mut input)? };
        let Some(request) = request else { return Ok(()) };
        let number = shared.number.fetch_add(1, Ordering::SeqCst);
        let seen = Seen { number, verb: request.verb.clone(), target: request.target.clone() };
        let decide = shared.decide.lock().unwrap_or_else(PoisonError::into_inner).clone();
        shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
        let fate = decide(&seen);
        let answer = |server: &mut dyn Stream| -> io::Result<Vec<u8>> {
            server.write_all(&request.bytes)?;
            server.flush()?;
            if is_http { http_answer(server, &request.verb) } else { sql_answer(server) }
        };
        match fate {
            Fate::Pass => out.write_all(&answer(&mut *server)?)?,
            Fate::Delay(time) => {
                std::thread::sleep(time);
                out.write_all(&answer(&mut *server)?)?;
            }
            Fate::Answer(status, body) => {
                let len = body.len();
                write!(out, "HTTP/1.1 {status} Refused\r\nContent-Length: {len}\r\n\r\n{body}")?;
            }
            Fate::Lose => return out.shutdown(Shutdown::Both),
            Fate::LoseAnswer => {
                answer(&mut *server)?;
                return out.shutdown(Shutdown::Both);
            }
            Fate::Late(time) => {
                shared.late.fetch_add(1, Ordering::SeqCst);
                let closed = out.shutdown(Shutdown::Both);
                std::thread::sleep(time);
                let _ = answer(&mut *server);
                shared.late.fetch_sub(1, Ordering::SeqCst);
                return closed;
            }
            Fate::Twice => {
                let first = answer(&mut *server)?;
                let _ = answer(&mut *server)?;
                out.write_all(&first)?;
            }
        }
        out.flush()?;
    }
}

/// Whole request.
struct Request {
    verb: String,
    target: String,
    bytes: Vec<u8>,
}

fn read_head(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if input.read_until(b'\n', &mut head)? == 0 {
            return Ok(Vec::new());
        }
    }
    Ok(head)
}

fn header(head: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head).into_owned();
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim().to_owned())
}

fn body_len(head: &[u8]) -> usize {
    header(head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn http_request(input: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut bytes = read_head(input)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let first = String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned();
    let mut words = first.split(' ').map(str::to_owned);
    let (verb, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let at = bytes.len();
    bytes.resize(at + body_len(&bytes), 0);
    input.read_exact(&mut bytes[at..])?;
    Ok(Some(Request { verb, target, bytes }))
}

fn http_answer(server: &mut dyn Stream, verb: &str) -> io::Result<Vec<u8>> {
    // Unbuffered, so that nothing of the next answer is taken.
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        server.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    let status: u16 = String::from_utf8_lossy(&bytes[9..12]).parse().unwrap_or(0);
    if verb == "HEAD" || status == 204 || status == 304 {
        return Ok(bytes);
    }
    if header(&bytes, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        loop {
            let at = bytes.len();
            while !bytes[at..].ends_with(b"\r\n") {
                server.read_exact(&mut byte)?;
                bytes.push(byte[0]);
            }
            let size = String::from_utf8_lossy(&bytes[at..]).trim().to_owned();
            let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            let from = bytes.len();
            bytes.resize(from + size + 2, 0);
            server.read_exact(&mut bytes[from..])?;
            if size == 0 {
                return Ok(bytes);
            }
        }
    }
    let at = bytes.len();
    bytes.resize(at + body_len(&bytes), 0);
    server.read_exact(&mut bytes[at..])?;
    Ok(bytes)
}

/// Passes the startup of a session, without TLS and passwords, up to the first ready server.
fn start_session(
    input: &mut BufReader<TcpStream>,
    out: &mut TcpStream,
    server: &mut dyn Stream,
) -> io::Result<()> {
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let mut body = vec![0; (u32::from_be_bytes(len) as usize).saturating_sub(4)];
    input.read_exact(&mut body)?;
    server.write_all(&len)?;
    server.write_all(&body)?;
    out.write_all(&sql_answer(server)?)
}

/// Reads one message: its type and all its bytes.
fn message(input: &mut dyn Read) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut bytes = vec![0; 5];
    match input.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
    bytes.resize(1 + len, 0);
    input.read_exact(&mut bytes[5..])?;
    Ok(Some((bytes[0], bytes)))
}

/// Reads all messages up to the one that asks for an answer.
fn sql_request(input: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut request = Request { verb: "SQL".to_owned(), target: String::new(), bytes: Vec::new() };
    loop {
        let Some((kind, bytes)) = message(input)? else { return Ok(None) };
        if matches!(kind, b'P' | b'Q') {
            let text = bytes[5..].split(|byte| *byte == 0).find(|part| !part.is_empty()).unwrap_or_default();
            request.target.push_str(&String::from_utf8_lossy(text));
        }
        if kind == b'X' {
            return Ok(None);
        }
        request.bytes.extend_from_slice(&bytes);
        if matches!(kind, b'S' | b'Q') {
            return Ok(Some(request));
        }
    }
}

/// Reads all messages up to `ReadyForQuery`.
fn sql_answer(server: &mut dyn Stream) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let Some((kind, bytes)) = message(server)? else {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        };
        all.extend_from_slice(&bytes);
        if kind == b'Z' {
            return Ok(all);
        }
    }
}
