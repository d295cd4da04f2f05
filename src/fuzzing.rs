//! Invariants of parsers of untrusted bytes, for the fuzz targets. `cargo test` does the same with every file in
//! their corpora.

pub use longshore_http::{headers_hold as headers, request_framing_holds as request_framing};
pub use longshore_protocol::{envelope_holds as envelope, template_holds as template};
pub use longshore_server::transport::stdio::framing_holds as framing;

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Checks all files of a corpus, of which there are so many at least.
    fn replay(target: &str, check: fn(&[u8]), at_least: usize) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(target);
        let mut files = 0;
        for entry in std::fs::read_dir(corpus).expect("a folder") {
            let path = entry.expect("an entry").path();
            let bytes = std::fs::read(&path).expect("a file");
            if std::panic::catch_unwind(|| check(&bytes)).is_err() {
                panic!("{} does not hold", path.display());
            }
            files += 1;
        }
        assert!(at_least <= files, "{files} files for {target}");
    }

    #[test]
    fn the_corpus_of_envelopes_holds() {
        replay("envelope", super::envelope, 100);
    }

    #[test]
    fn the_corpus_of_headers_holds() {
        replay("headers", super::headers, 40);
    }

    #[test]
    fn the_corpus_of_templates_holds() {
        replay("template", super::template, 20);
    }

    #[test]
    fn the_corpus_of_request_framings_holds() {
        replay("request_framing", super::request_framing, 20);
    }

    #[test]
    fn the_corpus_of_framings_holds() {
        replay("framing", super::framing, 20);
    }
}
