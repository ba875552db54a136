//! What the service must know of a model's texts.

use spec_core::Token;
use spec_model::Conversation;
use spec_runtime::TokenText;

/// A model's tokenizer and chat template. Implemented above, by whoever owns the model's files.
pub trait Language: TokenText {
    /// The tokens of a text. With `special` the text of control tokens means them, and the text begins as the model's texts do.
    ///
    /// # Errors
    /// What of the text has no token, in words.
    fn encode(&self, text: &str, special: bool) -> Result<Vec<Token>, String>;

    /// The text of tokens, all of which the vocabulary has; bytes that are no characters become U+FFFD.
    fn decode(&self, ids: &[Token]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.bytes(id).into_owned()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The text of a conversation, up to where the assistant is to answer; `None` for a model without a chat template.
    ///
    /// # Errors
    /// Why the template refuses the conversation, in words.
    fn render(&self, conversation: &Conversation<'_>) -> Option<Result<String, String>>;

    /// Tokens that end an answer.
    fn end_ids(&self) -> &[Token];
}
