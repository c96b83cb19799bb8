//! What the two requests do.

use crate::{
    body::object_with_value, init::Init, numbered::Numbered, one_by_one::OneByOne, place::Layout,
    process::Process, refused::Refused,
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
    /// Whether the launcher serves several calls at a time.
    numbered: bool,
    /// Held during a call, so that others wait, unless the launcher serves several.
    action: Mutex<Option<Action>>,
}

/// An action that is there.
struct Action {
    /// Where its code is.
    layout: Layout,
    main: String,
    environment: Vec<(String, String)>,
    running: Running,
}

/// The process of an action.
enum Running {
    OneByOne(Box<OneByOne>),
    Numbered(Numbered),
}

impl Running {
    fn is_alive(&mut self) -> bool {
        match self {
            Self::OneByOne(process) => process.is_alive(),
            Self::Numbered(process) => process.is_alive(),
        }
    }
}

impl Server {
    /// A server without an action, which puts its code there and runs it with this launcher.
    pub fn new(layout: Layout, launcher: Vec<String>, numbered: bool) -> Self {
        Self { layout, launcher, numbered, action: Mutex::const_new(None) }
    }

    /// `POST /init`.
    pub async fn init(&self, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut action = self.action.lock().await;
        if action.is_some() {
            let text = "Cannot initialize the action more than once.".to_owned();
            return Err(Refused { status: StatusCode::FORBIDDEN, text });
        }
        let (_, value) = object_with_value(body)?;
        let Init { given, main, environment } = Init::read(&value)?;
        let layout = self.layout.put(given)?;
        let running = self.start(&layout, &main, &environment).await?;
        *action = Some(Action { layout, main, environment, running });
        Ok(br#"{"ok":true}"#.to_vec())
    }

    /// `POST /run`.
    pub async fn run(&self, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let answer = self.call(body).await;
        // Who reads the logs cuts them here.
        let _ = writeln!(std::io::stdout(), "{END_OF_ACTIVATION}");
        let _ = writeln!(std::io::stderr(), "{END_OF_ACTIVATION}");
        answer
    }

    async fn call(&self, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let line = line(body)?;
        let mut action = self.action.lock().await;
        let Some(Action { layout, main, environment, running }) = action.as_mut() else {
            let text = "POST /init comes before POST /run.".to_owned();
            return Err(Refused { status: StatusCode::CONFLICT, text });
        };
        // The last call may have ended it.
        if !running.is_alive() {
            *running = self.start(layout, main, environment).await?;
        }
        let answer = match running {
            Running::OneByOne(process) => process.call(line).await?,
            Running::Numbered(process) => {
                let answer = process.call(&line);
                drop(action);
                answer.await?
            }
        };
        match serde_json::from_slice::<crate::body::Object<'_>>(&answer) {
            Ok(_) => Ok(answer),
            Err(_) => Err(Refused::action("The action did not return a dictionary.")),
        }
    }

    async fn start(
        &self,
        layout: &Layout,
        main: &str,
        environment: &[(String, String)],
    ) -> Result<Running, Refused> {
        let directory = &layout.directory;
        if self.launcher.is_empty() {
            layout.check_program()?;
            let program = layout.program();
            let command = [program.to_string_lossy().into_owned()];
            let (mut process, calls) = Process::start(&command, directory, environment)?;
            process.has_begun().await?;
            return Ok(Running::OneByOne(Box::new(OneByOne::new(process, calls))));
        }
        let mut command = self.launcher.clone();
        command.extend([directory.to_string_lossy().into_owned(), main.to_owned()]);
        let (mut process, calls) = Process::start(&command, directory, environment)?;
        process.is_ready().await?;
        Ok(match self.numbered {
            true => Running::Numbered(Numbered::new(process, calls)),
            false => Running::OneByOne(Box::new(OneByOne::new(process, calls))),
        })
    }
}

/// The body of a call as one line, with a value if it has none.
fn line(body: &[u8]) -> Result<Vec<u8>, Refused> {
    let failed = |error: serde_json::Error| Refused::action(error.to_string());
    let (mut body, value) = object_with_value(body)?;
    let no_value = serde_json::value::RawValue::from_string("{}".to_owned()).map_err(failed)?;
    if value.is_empty() {
        body.insert("value".to_owned(), &no_value);
    }
    let line = serde_json::to_vec(&body).map_err(failed)?;
    // Between values of JSON, where alone these can be, all white space is alike.
    let blank = |byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte };
    Ok(line.into_iter().map(blank).collect())
}
