//! `listing RUSTDOC.json`: a line for each public item.

#![forbid(unsafe_code)]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let json = std::env::args_os().nth(1).ok_or("usage: listing RUSTDOC.json")?;
    // What follows from the types: its changes are seen in the types.
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()?;
    print!("{api}");
    Ok(())
}
