//! The HTTP of a double: one thread for each connection, as many requests on it as come.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::answer::Answer;
use super::{Reply, Request, State, lock};
use crate::Error;

/// Listens on a free port, and says which.
pub(super) fn start(state: Arc<Mutex<State>>) -> Result<u16, Error> {
    let failed = |error: io::Error| Error::Aws(format!("cannot listen on loopback: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            let state = Arc::clone(&state);
            // The caller sees what went wrong with a connection.
            std::thread::spawn(move || drop(serve(&stream, &state)));
        }
    });
    Ok(port)
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream);
    let mut output = stream;
    while let Some(request) = read(&mut input)? {
        let reply = lock(state).reply(&request);
        match reply {
            Reply::Whole(answer) => write(&mut output, &answer, answer.body.as_bytes(), answer.body.len())?,
            Reply::Truncated(answer) => {
                let half = half(&answer);
                write(&mut output, &answer, half, half.len())?;
            }
            Reply::Dropped(answer) => {
                return write(&mut output, &answer, half(&answer), answer.body.len());
            }
            // Until the caller gives up.
            Reply::Never => return input.read(&mut [0]).map(|_| ()),
        }
    }
    Ok(())
}

fn half(answer: &Answer) -> &[u8] {
    let bytes = answer.body.as_bytes();
    bytes.get(..bytes.len() / 2).unwrap_or_default()
}

fn read(input: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let mut first = String::new();
    if input.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let mut request = Request {
        path: path.split('?').next().unwrap_or_default().to_owned(),
        headers: BTreeMap::new(),
        body: String::new(),
    };
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            let name = name.trim().to_ascii_lowercase();
            request.headers.insert(name, value.trim().to_owned());
        }
    }
    let length = request.headers.get("content-length");
    let length = length
        .and_then(|text| text.parse::<usize>().ok())
        .unwrap_or_default();
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    request.body = String::from_utf8_lossy(&body).into_owned();
    Ok(Some(request))
}

fn write(output: &mut &TcpStream, answer: &Answer, body: &[u8], length: usize) -> io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {} x\r\nContent-Type: {}\r\nContent-Length: {length}\r\n",
        answer.status, answer.kind
    );
    if let Some(error) = &answer.error {
        head.push_str(&format!("x-amzn-ErrorType: {error}\r\n"));
    }
    head.push_str("\r\n");
    output.write_all(head.as_bytes())?;
    output.write_all(body)?;
    output.flush()
}
