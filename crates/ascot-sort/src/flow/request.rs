//! The request of a flow: the program or function, its inputs and its outputs.

use std::ffi::OsString;
use std::time::Duration;

use ascot_io::directory_of;
use ascot_model::run_length::HALF;

use crate::api::{Output, Result, SortError, SortRequest};
use crate::flow::function::FunctionStreams;

/// The function in the middle of a flow.
#[derive(Clone, Debug)]
pub enum FlowFunction {
    /// A program and its arguments.
    Program(Vec<OsString>),
    /// A function of this process. It runs on a thread of its own, or on the one that waits for the flow, while
    /// [`run_flow`](super::run_flow) runs, and uses the streams: one for each input and output, or one for all inputs
    /// if they are merged. The flow succeeds when it has [ended](FunctionStreams::end) them; if the function fails,
    /// the flow has to be cancelled.
    InProcess {
        /// Its name, for plans and reports.
        name: String,
        /// Its streams.
        streams: FunctionStreams,
    },
}

/// A program or function, and its streams.
#[derive(Clone, Debug)]
pub struct FlowRequest {
    /// Its inputs, memory and volumes; with `merged`, the layout and keys of its records. The output is not used.
    pub sort: SortRequest,
    /// Whether the inputs are sorted files, of which the program gets one ordered stream.
    pub merged: bool,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// The program or function.
    pub function: FlowFunction,
    /// The share of reading to begin with, in the bytes of files that move; none: one half.
    pub alpha: Option<f64>,
    /// Time without a byte after which the program counts as stuck; none: it may take any time.
    pub idle_timeout: Option<Duration>,
    /// The program may close its streams before it has read its inputs.
    pub allow_unread: bool,
}

impl FlowRequest {
    /// The share of reading to begin with.
    pub(super) fn first_alpha(&self) -> f64 {
        self.alpha.unwrap_or(HALF)
    }

    /// The name of the program or function.
    pub(super) fn name(&self) -> String {
        self.words().into_iter().next().unwrap_or_default()
    }

    /// The program and its arguments, or the name of the function.
    pub(super) fn words(&self) -> Vec<String> {
        match &self.function {
            FlowFunction::Program(command) => {
                command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
            }
            FlowFunction::InProcess { name, .. } => vec![name.clone()],
        }
    }

    /// Refuses a flow without streams or without a program, and outputs of one name.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(SortError::Request(text));
        if matches!(&self.function, FlowFunction::Program(command) if command.is_empty()) {
            return refuse(
                "there is no program to run\n  name it after --: ascot flow ... -- COMMAND".into(),
            );
        }
        if self.sort.inputs.is_empty() && self.outputs.is_empty() {
            return refuse(
                "a flow without streams\n  name files: --inputs FILE... or --outputs FILE...".into(),
            );
        }
        let places: Vec<_> = self.outputs.iter().map(place_of).collect();
        for (at, output) in self.outputs.iter().enumerate() {
            if places[..at].contains(&places[at]) {
                return refuse(format!(
                    "output {at} has the name of another output: {}\n  give each a name of its own",
                    super::ends::output_name(output).display()
                ));
            }
        }
        Ok(())
    }
}

/// The file that an output is, whatever its name: of a new one, the directory counts.
fn place_of(output: &Output) -> Output {
    let Output::Path(path) = output else { return output.clone() };
    let of_directory = || Some(directory_of(path).canonicalize().ok()?.join(path.file_name()?));
    Output::Path(path.canonicalize().ok().or_else(of_directory).unwrap_or_else(|| path.clone()))
}
