//! One flag per key, for clap.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::KEYS;

/// The flags that were given, by key. Their values are judged together with the other layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigArgs(pub(crate) BTreeMap<&'static str, String>);

impl Args for ConfigArgs {
    fn augment_args(command: Command) -> Command {
        let args = KEYS.iter().map(|key| {
            let variable = key.variables().next().unwrap_or_default();
            let default = match key.default {
                "" => String::new(),
                default => format!("default: {default}, "),
            };
            let arg = Arg::new(key.path)
                .long(key.long())
                .value_name("VALUE")
                .hide_short_help(true)
                .help(format!("{} [{default}env: {variable}]", key.help))
                .help_heading("Configuration (also in the file of --config and in the environment)");
            if key.is_boolean() {
                arg.num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            } else {
                arg.allow_hyphen_values(true)
            }
        });
        command.args(args.collect::<Vec<_>>())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = KEYS.iter().filter_map(|key| {
            let value = matches.get_one::<String>(key.path)?;
            Some((key.path, value.clone()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
