//! Everything toolset: an example of each protocol feature, with one file for each kind.
//!
//! Items that begin with `test_` are called by the official conformance suite, which prescribes their names,
//! arguments and results.

mod apps;
mod arguments;
mod asking;
mod changes;
mod contents;
mod prompts;
mod reports;
mod resources;
mod rounds;
mod structured;
mod tasks;

use crate::Toolset;
use crate::catalog::{Announcer, IntoPrompt as _, IntoResource as _, IntoTool as _};

pub fn toolset(announcer: &Announcer) -> Toolset {
    Toolset {
        tools: vec![
            // The most interesting tools come first. The suite calls the very first one without arguments.
            apps::throw_dice.into_tool(),
            structured::weather.into_tool(),
            contents::annotated_message.into_tool(),
            reports::long_operation.into_tool(),
            structured::primes.into_tool(),
            contents::resource_links.into_tool(),
            arguments::echo.into_tool(),
            structured::who_am_i.into_tool(),
            reports::all_levels.into_tool(),
            structured::metadata.into_tool(),
            // Tools that the suite calls, and all others.
            contents::test_simple_text.into_tool(),
            contents::test_image_content.into_tool(),
            contents::test_audio_content.into_tool(),
            contents::test_embedded_resource.into_tool(),
            contents::test_multiple_content_types.into_tool(),
            contents::test_error_handling.into_tool(),
            arguments::json_schema_2020_12_tool(),
            // The suite looks for the first tool with a mirrored argument.
            arguments::test_custom_header.into_tool(),
            arguments::run_query.into_tool(),
            reports::test_tool_with_progress.into_tool(),
            reports::test_tool_with_logging.into_tool(),
            reports::test_logging_tool.into_tool(),
            changes::test_trigger_tool_change(announcer),
            changes::test_trigger_prompt_change(announcer),
            changes::touch_watched_resource(announcer),
            changes::test_reconnection.into_tool(),
            asking::test_sampling.into_tool(),
            asking::test_elicitation.into_tool(),
            asking::test_elicitation_sep1034_defaults.into_tool(),
            asking::test_elicitation_sep1330_enums.into_tool(),
            asking::visit_page(announcer),
            asking::visit_first.into_tool(),
            asking::list_roots.into_tool(),
            asking::test_missing_capability.into_tool(),
            rounds::test_streaming_elicitation.into_tool(),
            rounds::test_input_required_result_elicitation.into_tool(),
            rounds::test_input_required_result_sampling.into_tool(),
            rounds::test_input_required_result_list_roots.into_tool(),
            rounds::test_input_required_result_request_state.into_tool(),
            rounds::test_input_required_result_tampered_state.into_tool(),
            rounds::test_input_required_result_multiple_inputs.into_tool(),
            rounds::test_input_required_result_multi_round.into_tool(),
            rounds::test_input_required_result_capabilities.into_tool(),
            tasks::greet.into_tool(),
            tasks::slow_compute.into_tool(),
            tasks::failing_job.into_tool(),
            tasks::protocol_error_job.into_tool(),
            tasks::confirm_delete.into_tool(),
            tasks::multi_input.into_tool(),
            tasks::test_tool_with_task.into_tool(),
        ],
        resources: vec![
            resources::static_text.into_resource(),
            resources::static_binary.into_resource(),
            resources::watched.into_resource(),
            resources::guide(),
            resources::folder.into_resource(),
            resources::template.into_resource(),
            resources::document.into_resource(),
            apps::dice(),
            changes::pulse(announcer),
        ],
        prompts: vec![
            prompts::test_simple_prompt.into_prompt(),
            prompts::test_prompt_with_arguments.into_prompt(),
            prompts::test_prompt_with_embedded_resource.into_prompt(),
            prompts::test_prompt_with_image.into_prompt(),
            prompts::introduce_colleague.into_prompt(),
            rounds::test_input_required_result_prompt.into_prompt(),
        ],
        // A test checks that the skill is valid.
        skills: apps::skill().into_iter().collect(),
    }
}

/// An image of 160 by 100 pixels, as Base64: a boat before sunset.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAKAAAABkBAMAAADzmCa8AAAAJFBMVEUYIEg6NGhuRniyXHDohlz4vm7/7KoSOlweVHY8KCQeFhj///8O4UfIAAABg0lEQVR42u3WPU7EMBAFYF+BK1DSbse2iIKtEWBayA1QToC0V3ALpKFNqHw5kviHsDuZiMlLsFZ+XWLvp5mMLa1SOTk5/5EzcDKYwdMEz8HJYAbTBi/eZOBmLJfvG0k4sE4etGmD2xas0aBFgnYRsMaB22VAQc/qio61Nx8t2NCr10UXckkEOo8WR8CdBy256r3iCQQWBSOqsY492Iw3TDc9BVoMuOPAgUf0PAk2XIFEiWqs48VAy3VM9KxuiTx2kK4c+HWw+Bt8PvwtCfbRFf3+z+DnUap5oD4C57bMFygANVugZChsgUmAmutYdA65AifBfUwZM+edwjA/7yTga+xvFRD+DVMAX2LLqCkH7w40FPix4UEJE1q+R00ZDiZ/l+PdWwc8ybscLzNsyvChrHuXjSSu4wdqKRGQSSIg13I7ImMGkzJmML3uIU7Ub+v2uYO4J7b1d9k/h8XBIQhGz4SfxW0lsa1MBHSXmQbh31AE+nLXAWVDcX9EgFOGg8yxQX/Db18ds6nxKrRSAAAAAElFTkSuQmCC";
