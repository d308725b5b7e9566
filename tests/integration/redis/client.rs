//! A small synchronous Redis client for tests.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use redis::{Parser, Value};

pub struct Client {
    stream: TcpStream,
    parser: Parser,
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, parser: Parser::new() })
    }

    /// Panics if the server returns an error.
    pub fn command(&mut self, parts: &[&str]) -> Value {
        match self.try_command(parts) {
            Ok(Value::ServerError(error)) => panic!("{parts:?}: {error:?}"),
            Ok(value) => value,
            Err(error) => panic!("{parts:?}: {error}"),
        }
    }

    pub fn try_command(&mut self, parts: &[&str]) -> io::Result<Value> {
        self.send(&[parts])?;
        self.receive()
    }

    /// Sends many commands in one write, then reads all replies.
    pub fn pipeline(&mut self, commands: &[&[&str]]) -> Vec<Value> {
        self.send(commands).unwrap();
        commands.iter().map(|_| self.receive().unwrap()).collect()
    }

    fn send(&mut self, commands: &[&[&str]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for parts in commands {
            write!(bytes, "*{}\r\n", parts.len())?;
            for part in *parts {
                write!(bytes, "${}\r\n{part}\r\n", part.len())?;
            }
        }
        self.stream.write_all(&bytes)
    }

    /// Reads the next reply or push message.
    pub fn receive(&mut self) -> io::Result<Value> {
        self.parser.parse_value(&mut self.stream).map_err(io::Error::other)
    }
}

/// Formats a value as text for people.
pub fn text(value: &Value) -> String {
    match value {
        Value::Nil => String::new(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(" "),
        other => format!("{other:?}"),
    }
}
