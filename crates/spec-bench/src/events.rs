//! Server-sent events: what an answer that streams is made of.

use std::io::{self, BufRead};

/// The data of each event, until the stream ends.
pub(crate) struct Events<R> {
    reader: R,
}

impl<R: BufRead> Events<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader }
    }
}

impl<R: BufRead> Iterator for Events<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut data: Option<String> = None;
        loop {
            let mut line = String::new();
            match self.reader.read_line(&mut line) {
                Err(error) => return Some(Err(error)),
                // An event that no empty line ended was not meant to be seen.
                Ok(0) => return None,
                Ok(_) => {}
            }
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                if data.is_some() {
                    return data.map(Ok);
                }
                continue;
            }
            // Of fields, data alone; a line that begins with a colon is a sign of life.
            let Some(value) = line.strip_prefix("data:") else { continue };
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut data {
                None => data = Some(value.to_owned()),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Events;
    use std::io::{BufReader, Read};

    fn read(text: &str) -> Vec<String> {
        // One byte at a time, as a network may.
        let slow = BufReader::with_capacity(1, text.as_bytes().take(u64::MAX));
        Events::new(slow).map(Result::unwrap).collect()
    }

    #[test]
    fn events_are_their_data_whatever_stands_around_it() {
        let text = ": alive\n\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:first\ndata: second\n\n\n\ndata: [DONE]\n\n";
        assert_eq!(read(text), ["{\"a\":1}", "first\nsecond", "[DONE]"]);
    }

    #[test]
    fn an_event_that_was_cut_is_none() {
        assert_eq!(read("data: whole\n\ndata: cut"), ["whole"]);
        assert_eq!(read("data: whole\n\ndata: cut\n"), ["whole"]);
    }
}
