//! What the two requests do.

use crate::{
    body::object_with_value, init::Init, place::Layout, process::Process, refused::Refused,
};
use http::StatusCode;
use std::io::Write;
use tokio::sync::Mutex;

/// The line that ends an activation's output, on standard output and on standard error.
const END_OF_ACTIVATION: &str = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX";

/// Serves one action.
pub struct Server {
    layout: Layout,
    launcher: Vec<String>,
    /// OpenWhisk runs an action once at a time; should anybody else not, requests wait for each other.
    action: Mutex<Option<Action>>,
}

/// An action that is there.
struct Action {
    main: String,
    environment: Vec<(String, String)>,
    process: Process,
}

impl Server {
    /// A server without an action, which puts its code there and runs it with this launcher.
    pub fn new(layout: Layout, launcher: Vec<String>) -> Self {
        Self { layout, launcher, action: Mutex::const_new(None) }
    }

    /// `POST /init`.
    pub async fn init(&self, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut action = self.action.lock().await;
        if action.is_some() {
            let text = "Cannot initialize the action more than once.".to_owned();
            return Err(Refused { status: StatusCode::FORBIDDEN, text });
        }
        let (_, value) = object_with_value(body)?;
        let Init { code, main, environment } = Init::read(&value)?;
        self.layout.put(&code)?;
        drop(code);
        let process = self.start(&main, &environment).await?;
        *action = Some(Action { main, environment, process });
        Ok(br#"{"ok":true}"#.to_vec())
    }

    /// `POST /run`.
    pub async fn run(&self, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut action = self.action.lock().await;
        let answer = self.call(action.as_mut(), body).await;
        // Who reads the logs cuts them here.
        let _ = writeln!(std::io::stdout(), "{END_OF_ACTIVATION}");
        let _ = writeln!(std::io::stderr(), "{END_OF_ACTIVATION}");
        answer
    }

    async fn call(&self, action: Option<&mut Action>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let (mut body, value) = object_with_value(body)?;
        let Some(Action { main, environment, process }) = action else {
            let text = "POST /init comes before POST /run.".to_owned();
            return Err(Refused { status: StatusCode::CONFLICT, text });
        };
        // The last call may have ended it.
        if !process.is_alive() {
            *process = self.start(main, environment).await?;
        }
        let no_value = serde_json::value::RawValue::from_string("{}".to_owned());
        let no_value = no_value.map_err(|error| Refused::action(error.to_string()))?;
        if value.is_empty() {
            body.insert("value".to_owned(), &no_value);
        }
        let line = serde_json::to_vec(&body).map_err(|error| Refused::action(error.to_string()))?;
        // Between values of JSON, where alone these can be, all white space is alike.
        let line =
            line.into_iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte });
        let answer = process.call(line.collect()).await?;
        match serde_json::from_slice::<crate::body::Object<'_>>(&answer) {
            Ok(_) => Ok(answer),
            Err(_) => Err(Refused::action("The action did not return a dictionary.")),
        }
    }

    async fn start(
        &self,
        main: &str,
        environment: &[(String, String)],
    ) -> Result<Process, Refused> {
        let directory = &self.layout.directory;
        if self.launcher.is_empty() {
            self.layout.check_program()?;
            let program = self.layout.program();
            let command = [program.to_string_lossy().into_owned()];
            let mut process = Process::start(&command, directory, environment)?;
            process.has_begun().await?;
            return Ok(process);
        }
        let mut command = self.launcher.clone();
        command.extend([directory.to_string_lossy().into_owned(), main.to_owned()]);
        let mut process = Process::start(&command, directory, environment)?;
        process.is_ready().await?;
        Ok(process)
    }
}
