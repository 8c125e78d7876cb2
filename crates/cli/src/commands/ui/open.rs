//! Opens the browser. Its argument is a file of the user alone, and not the address: every user sees arguments.

use crate::commands::run::start_detached;
use crate::context;
use crate::render::output::Printer;
use std::io::Write;
use tempfile::NamedTempFile;

/// Programs that open a file in the user's browser, the first that exists.
const OPENERS: [&str; 3] = ["xdg-open", "sensible-browser", "x-www-browser"];

/// Opens the address, and returns the file that leads there. The file has mode 0600 and ends with this value.
pub(super) fn browser(out: &Printer, url: &str) -> Option<NamedTempFile> {
    let opened = redirect(url).ok().and_then(|file| {
        let opener = OPENERS.iter().find_map(|name| context::on_path(name))?;
        start_detached(&opener, file.path()).ok()?;
        Some(file)
    });
    if opened.is_none() {
        out.remark("No browser was found. Open the address in one.");
    }
    opened
}

fn redirect(url: &str) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("safepoint-").suffix(".html").tempfile()?;
    // The address has only letters, digits and signs that HTML leaves alone.
    write!(
        file,
        "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer>\
         <meta http-equiv=refresh content=\"0; url={url}\"><title>Safepoint</title>"
    )?;
    file.flush()?;
    Ok(file)
}
