//! What was said so far.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use spec_model::Message;

const SYSTEM: &str = "system";
const USER: &str = "user";
const ASSISTANT: &str = "assistant";

/// Turns and answers, in turn, behind what the assistant is told beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conversation {
    pub(super) system: Option<String>,
    turns: Vec<Message>,
}

impl Conversation {
    /// The messages, as a template takes them.
    pub(super) fn messages(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new(SYSTEM, text));
        system.chain(self.turns.iter().cloned()).collect()
    }

    pub(super) fn ask(&mut self, text: impl Into<String>) {
        self.turns.push(Message::new(USER, text));
    }

    pub(super) fn answer(&mut self, text: impl Into<String>) {
        self.turns.push(Message::new(ASSISTANT, text));
    }

    /// Forgets everything but the system message.
    pub(super) fn clear(&mut self) {
        self.turns.clear();
    }

    /// Takes the last turn back, and its answer where there is one. Gives the turn.
    pub(super) fn undo(&mut self) -> Option<String> {
        let last = self.turns.iter().rposition(|message| message.role == USER)?;
        self.turns.truncate(last + 1);
        self.turns.pop().map(|message| message.content)
    }

    /// Turns so far.
    pub(super) fn turns(&self) -> usize {
        self.turns.iter().filter(|message| message.role == USER).count()
    }

    /// Writes an object whose `messages` are as chat interfaces exchange them.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let message = |message: Message| json!({ "role": message.role, "content": message.content });
        let messages: Vec<Value> = self.messages().into_iter().map(message).collect();
        let text = format!("{:#}\n", json!({ "messages": messages }));
        std::fs::write(path, text).with_context(|| format!("writing the conversation to {}", path.display()))
    }

    /// Reads what [`save`](Self::save) writes, or a bare list of messages.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let value: Value = serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
        let messages = value.get("messages").unwrap_or(&value);
        Self::read(messages).map_err(|problem| anyhow!("{}: {problem}", path.display()))
    }

    fn read(messages: &Value) -> Result<Self, String> {
        let messages = messages.as_array().ok_or("it has no list of messages")?;
        let mut conversation = Self::default();
        for (index, message) in messages.iter().enumerate() {
            let text = |key: &str| {
                let value = message.get(key).and_then(Value::as_str);
                value.ok_or_else(|| format!("message {}: `{key}` is missing or no text", index + 1))
            };
            let (role, content) = (text("role")?, text("content")?);
            let expected = if conversation.turns.len().is_multiple_of(2) { USER } else { ASSISTANT };
            match role {
                SYSTEM if index == 0 => conversation.system = Some(content.to_owned()),
                _ if role == expected => conversation.turns.push(Message::new(role, content)),
                _ => return Err(format!("message {} is of role {role} and not {expected}", index + 1)),
            }
        }
        match conversation.turns.len().is_multiple_of(2) {
            true => Ok(conversation),
            false => Err("the last turn has no answer".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Conversation {
        let mut conversation = Conversation { system: Some("Be brief.".into()), turns: Vec::new() };
        for (turn, answer) in [("Hi", "Hello."), ("And \"now\"?\nWell?", "No — ünderstood")] {
            conversation.ask(turn);
            conversation.answer(answer);
        }
        conversation
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("talk.json");
        for conversation in [example(), Conversation::default()] {
            conversation.save(&path).expect("a file");
            assert_eq!(Conversation::load(&path).expect("it is one"), conversation);
        }
    }

    #[test]
    fn other_files_are_refused_with_the_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("talk.json");
        for (text, said) in [
            ("", "no JSON"),
            ("{}", "no list of messages"),
            (r#"[{"role": "user"}]"#, "message 1: `content`"),
            (r#"[{"role": "user", "content": [1]}]"#, "message 1: `content`"),
            (r#"[{"role": "assistant", "content": "x"}]"#, "message 1 is of role assistant and not user"),
            (r#"[{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]"#, "message 2"),
            (r#"[{"role": "user", "content": "x"}]"#, "no answer"),
        ] {
            std::fs::write(&path, text).expect("a file");
            let error = format!("{:#}", Conversation::load(&path).expect_err(text));
            assert!(error.contains(said) && error.contains("talk.json"), "{text}: {error}");
        }
    }

    #[test]
    fn the_last_turn_goes_with_its_answer() {
        let mut conversation = example();
        assert_eq!(conversation.undo().as_deref(), Some("And \"now\"?\nWell?"));
        assert_eq!((conversation.turns(), conversation.messages().len()), (1, 3));
        conversation.ask("unanswered");
        assert_eq!(conversation.undo().as_deref(), Some("unanswered"));
        assert_eq!(conversation.undo().as_deref(), Some("Hi"));
        assert_eq!(conversation.undo(), None);
        assert_eq!(conversation.messages().len(), 1, "the system message stays");
    }
}
