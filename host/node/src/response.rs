//! Responses to requests for an instance's server, which pass through the agent.

use bytes::Bytes;
use http::Response;
use squeezy_protocol::{ErrorBody, ErrorCode, INSTANCE_HEADER};

/// Maximum number of characters quoted from a response.
const QUOTED: usize = 120;

/// Whether the response comes from the instance's own server. If that cannot answer, the agent does.
pub(crate) fn is_from_instance(response: &Response<Bytes>) -> bool {
    response.headers().contains_key(INSTANCE_HEADER)
}

/// The agent's reason why there is no answer from the instance's server.
pub(crate) fn agent_problem(response: &Response<Bytes>) -> ErrorBody {
    serde_json::from_slice(response.body())
        .unwrap_or_else(|_| ErrorBody { code: ErrorCode::Internal, message: quote(response) })
}

/// The beginning of a response, on one line.
pub fn quote(response: &Response<Bytes>) -> String {
    String::from_utf8_lossy(response.body())
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(QUOTED)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_quoted_in_its_own_words() {
        let response = |body: &str| Response::new(Bytes::from(body.to_owned()));
        let body = "{\"code\":\"bad_answer\",\"message\":\"the server did not answer in HTTP\"}";
        let said = agent_problem(&response(body));
        let message = "the server did not answer in HTTP".to_owned();
        assert_eq!(said, ErrorBody { code: ErrorCode::BadAnswer, message });
        assert_eq!(agent_problem(&response("{")).message, "{");
    }

    #[test]
    fn a_quotation_is_one_short_line() {
        let response = Response::new(Bytes::from("x\n".repeat(500)));
        assert_eq!(quote(&response).len(), QUOTED);
        assert_eq!(quote(&response).lines().count(), 1);
    }
}
