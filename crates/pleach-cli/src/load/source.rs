//! The input of a load: a file, or standard input, with a bar that follows its bytes.
//!
//! A thread of its own reads standard input, so that Ctrl-C ends a load that waits for a slow producer. A file is read
//! directly.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use indicatif::ProgressBar;

use pleach_command::Interrupt;

use crate::failure::{Failure, Result};
use crate::progress;

/// Bytes read at once. Arbitrary.
const CHUNK_LEN: usize = 256 << 10;

/// Chunks of standard input that are read ahead.
const CHUNKS_WAITING: usize = 4;

/// How often a wait for standard input checks for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Buffered input.
pub(super) type Source = BufReader<Box<dyn Read>>;

/// Opens the input at `path`, or standard input for "-", with a bar for its bytes.
pub(super) fn open_source(path: &Path, interrupt: &Interrupt) -> Result<(Source, ProgressBar)> {
    let (input, len): (Box<dyn Read>, _) = if path.as_os_str() == "-" {
        (Box::new(StdinChunks::start(interrupt.clone())?), stdin_len())
    } else {
        let file = File::open(path).map_err(|e| Failure::io("open", path, &e))?;
        let metadata = file.metadata().map_err(|e| Failure::io("look at", path, &e))?;
        if metadata.is_dir() {
            return Err(is_directory(path));
        }
        (Box::new(file), metadata.is_file().then_some(metadata.len()))
    };
    let bar = progress::over_bytes(len);
    Ok((BufReader::with_capacity(CHUNK_LEN, Box::new(bar.wrap_read(input))), bar))
}

/// The input is a directory.
pub(super) fn is_directory(path: &Path) -> Failure {
    Failure::usage(format!("{} is a directory, not an input file", path.display()))
}

/// The byte order mark that some programs put in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Skips a byte order mark. Returns whether there was one.
pub(super) fn skip_byte_order_mark(source: &mut Source) -> io::Result<bool> {
    let starts = source.fill_buf()?.starts_with(BYTE_ORDER_MARK);
    if starts {
        source.consume(BYTE_ORDER_MARK.len());
    }
    Ok(starts)
}

/// Length of standard input, if it is a regular file.
fn stdin_len() -> Option<u64> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// Standard input as chunks that a thread reads ahead.
struct StdinChunks {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
    interrupt: Interrupt,
}

impl StdinChunks {
    fn start(interrupt: Interrupt) -> Result<Self> {
        let (sender, chunks) = sync_channel(CHUNKS_WAITING);
        let reader = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || read_ahead(&sender));
        reader.map_err(|e| Failure::io("read", Path::new("standard input"), &e))?;
        Ok(Self { chunks, chunk: io::Cursor::default(), interrupt })
    }

    /// The next chunk; `None` at the end or after Ctrl-C.
    fn next_chunk(&self) -> io::Result<Vec<u8>> {
        loop {
            match self.chunks.recv_timeout(LOOK_EVERY) {
                Ok(chunk) => return chunk,
                Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
                Err(RecvTimeoutError::Timeout) if self.interrupt.is_asked() => return Ok(Vec::new()),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Read for StdinChunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.chunk.read(out)?;
        if len > 0 {
            return Ok(len);
        }
        self.chunk = io::Cursor::new(self.next_chunk()?);
        self.chunk.read(out)
    }
}

/// Reads standard input to its end or an error, or until the receiver is dropped.
fn read_ahead(sender: &SyncSender<io::Result<Vec<u8>>>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut chunk = vec![0; CHUNK_LEN];
        let read = match stdin.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read,
        };
        let is_last = !matches!(read, Ok(1..));
        let chunk = read.map(|len| {
            chunk.truncate(len);
            chunk
        });
        if sender.send(chunk).is_err() || is_last {
            return;
        }
    }
}
