//! Who looks on: people see lines (in `lines`), a pipe gets bytes, a program gets JSON.

use protocol::build::Build;
use protocol::log::Chunk;
use std::io::{self, Write};

/// Shows a build while it goes on. Each fails only if nobody reads what it writes.
pub trait View: Send {
    /// The build has changed.
    ///
    /// # Errors
    ///
    /// If what is shown can't be written.
    fn build(&mut self, build: &Build) -> io::Result<()> {
        let _ = build;
        Ok(())
    }

    /// A chunk of its log has come.
    ///
    /// # Errors
    ///
    /// If what is shown can't be written.
    fn chunk(&mut self, chunk: &Chunk) -> io::Result<()>;

    /// Something is to be said in between, which is not the build's.
    ///
    /// # Errors
    ///
    /// If what is shown can't be written.
    fn note(&mut self, text: &str) -> io::Result<()> {
        crate::say::err(format_args!("callboard: {text}"));
        Ok(())
    }

    /// Some time has passed.
    ///
    /// # Errors
    ///
    /// If what is shown can't be written.
    fn tick(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing more will come.
    ///
    /// # Errors
    ///
    /// If what is shown can't be written.
    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of a log as the steps wrote them.
#[derive(Debug)]
pub struct Raw<W>(pub W);

impl<W: Write + Send> View for Raw<W> {
    fn chunk(&mut self, chunk: &Chunk) -> io::Result<()> {
        self.0.write_all(&chunk.bytes().unwrap_or_default())?;
        self.0.flush()
    }
}

/// The chunks of a log as the API has them, one a line.
#[derive(Debug)]
pub struct Json<W>(pub W);

impl<W: Write + Send> View for Json<W> {
    fn chunk(&mut self, chunk: &Chunk) -> io::Result<()> {
        writeln!(self.0, "{}", serde_json::to_string(chunk)?)?;
        self.0.flush()
    }
}

/// Nothing but the end matters.
#[derive(Debug)]
pub struct Silent;

impl View for Silent {
    fn chunk(&mut self, _: &Chunk) -> io::Result<()> {
        Ok(())
    }
}
