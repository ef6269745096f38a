//! `veneer man`: the manual pages, made from the same arguments as `--help`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;

use crate::cli;
use crate::output;

/// Prints the manual page of veneer, or writes those of all commands to a folder
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer man | man -l -
  veneer man --output-dir /usr/local/share/man/man1

Exit codes: 0 fine, 2 bad usage or input.")]
pub(crate) struct ManArgs {
    /// Writes a page for each command to FOLDER, which is made if it is not there
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> Result<ExitCode> {
    let command = cli::command();
    let Some(folder) = &args.output_dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        output::text(&page)?;
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut written = 0;
    write_pages(&command, "veneer", folder, &mut written)?;
    writeln!(
        io::stderr().lock(),
        "note: wrote {written} manual pages to {}",
        folder.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a command and those of its subcommands: `veneer-explain-pod.1`.
fn write_pages(command: &Command, name: &str, folder: &Path, written: &mut usize) -> Result<()> {
    for subcommand in command
        .get_subcommands()
        .filter(|subcommand| subcommand.get_name() != "help")
    {
        write_pages(
            subcommand,
            &format!("{name}-{}", subcommand.get_name()),
            folder,
            written,
        )?;
    }
    // The page is titled by the name of its file, and its synopsis says how the command is called.
    let page = command
        .clone()
        .name(name.to_owned())
        .bin_name(name.replace('-', " "))
        .display_name(name.to_owned());
    let path = folder.join(format!("{name}.1"));
    output::replace_file(&path, |out| Ok(Man::new(page).render(out)?))?;
    *written += 1;
    Ok(())
}
