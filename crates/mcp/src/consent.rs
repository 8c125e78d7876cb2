//! Confirmation by the user, for clients that can ask: `elicitation/create`, and since 2026-07-28 an
//! input-required result whose state is sealed.

use crate::answer::cut;
use crate::tokens::secret;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequiredResult, ProtocolVersion, RequestStateCodec, SealOptions,
};
use rmcp::service::RequestContext;
use safepoint::{Failure, FailureKind};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum wait for the user.
const PATIENCE: Duration = Duration::from_secs(600);
/// Key of the question in an input-required result.
const QUESTION: &str = "confirm";
/// Maximum length of a question.
const QUESTION_BYTES_MAX: usize = 2000;

/// Outcome of a question.
pub(crate) enum Consent {
    Given,
    /// The client asks, then repeats the request.
    Ask(InputRequiredResult),
    Refused(Failure),
}

/// Seals the state of questions, with a key of this process.
pub(crate) struct Consents {
    codec: RequestStateCodec,
}

fn declined(message: &str) -> Failure {
    Failure {
        code: "declined",
        kind: FailureKind::Failed,
        message: message.to_owned(),
        causes: Vec::new(),
        hints: vec!["Nothing was changed. Ask the user how to go on.".to_owned()],
    }
}

fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

fn form(mut message: String) -> ElicitRequestParams {
    cut(&mut message, QUESTION_BYTES_MAX);
    let requested_schema = ElicitationSchema::new(BTreeMap::new());
    ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }
}

impl Consents {
    pub(crate) fn new() -> Self {
        Self { codec: RequestStateCodec::new_unchecked(secret()) }
    }

    /// Asks the user if the client can. `binding` names the action and its state: an answer counts for it alone.
    pub(crate) async fn ask(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        binding: &str,
        question: String,
    ) -> Consent {
        if !can_ask(context) {
            return Consent::Given;
        }
        let modern = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        if modern {
            return self.ask_by_result(request, binding, question);
        }
        match context.peer.create_elicitation_with_timeout(form(question), Some(PATIENCE)).await {
            Ok(result) => judge(&result),
            Err(_) => Consent::Refused(declined("the user could not be asked")),
        }
    }

    fn ask_by_result(&self, request: &CallToolRequestParams, binding: &str, question: String) -> Consent {
        let Some(state) = &request.request_state else {
            let options = SealOptions::new().associated_data(binding.as_bytes()).ttl(PATIENCE);
            let state = self.codec.seal_with(QUESTION.as_bytes(), &options);
            let question = InputRequest::Elicitation(ElicitRequest::new(form(question)));
            let requests = BTreeMap::from([(QUESTION.to_owned(), question)]);
            return Consent::Ask(InputRequiredResult::new(Some(requests), Some(state)));
        };
        if self.codec.open_with(state, binding.as_bytes()).is_err() {
            return Consent::Refused(crate::tokens::stale(
                "the answer belongs to another state or is too old",
            ));
        }
        let answers = request.input_responses.as_ref();
        let answer = answers.and_then(|answers| answers.get(QUESTION)).cloned();
        match answer.map(serde_json::from_value::<ElicitResult>) {
            Some(Ok(result)) => judge(&result),
            _ => Consent::Refused(declined("the client sent no answer of the user")),
        }
    }
}

fn judge(result: &ElicitResult) -> Consent {
    match result.action {
        ElicitationAction::Accept => Consent::Given,
        _ => Consent::Refused(declined("cancelled: the user did not confirm")),
    }
}
