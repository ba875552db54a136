//! Shows what a GGUF file holds: `cargo run -p spec-model --example inspect -- MODEL.gguf [TEXT]`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use spec_model::{Checkpoint, Error};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: inspect MODEL.gguf [TEXT]");
        return ExitCode::from(2);
    };
    match inspect(&path, arguments.next().as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn inspect(path: &str, text: Option<&str>) -> Result<(), Error> {
    let checkpoint = Checkpoint::open(path)?;
    for key in checkpoint.keys() {
        println!("{key} = {}", checkpoint.metadata().and_then(|metadata| metadata.describe(key)).unwrap_or_default());
    }
    println!("\n{:#?}\n", checkpoint.config());
    let mut types = BTreeMap::<_, (usize, usize)>::new();
    for tensor in checkpoint.tensors() {
        let (count, bytes) = types.entry(tensor.tensor_type.name()).or_default();
        *count += 1;
        *bytes += tensor.stored_bytes();
    }
    for (name, (count, bytes)) in types {
        println!("{count:5} tensors of {name:5} {bytes:13} bytes");
    }
    if let Some(text) = text {
        let tokenizer = checkpoint.tokenizer()?;
        for id in tokenizer.encode(text, true)? {
            println!("{id:7} {:?}", tokenizer.token_text(id)?);
        }
    }
    Ok(())
}
