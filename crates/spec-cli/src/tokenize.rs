use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::args::TokenizeArgs;
use crate::session::Opened;

pub(crate) fn run(args: &TokenizeArgs) -> Result<ExitCode> {
    let opened = Opened::open(&args.file.model, args.file.text.pre_tokenizer.as_deref())?;
    let tokens = opened.tokenizer().encode(&args.text, args.special)?;
    if args.json {
        println!("{}", json!({ "tokens": tokens }));
        return Ok(ExitCode::SUCCESS);
    }
    for &token in &tokens {
        println!("{token:>8}  {:?}", String::from_utf8_lossy(&opened.tokenizer().token_bytes(token, true)?));
    }
    Ok(ExitCode::SUCCESS)
}
