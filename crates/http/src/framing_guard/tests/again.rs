use proptest::prelude::*;

use super::super::known_heads::KnownHeads;
use super::super::{BytePosition, FramingGuard, HeadMatch};
use super::HEAD;

/// Comparison results for sequential requests on one connection.
fn came(requests: &[String]) -> Vec<HeadMatch> {
    let mut watch = FramingGuard::default();
    let look =
        |text: &String| watch.inspect(&mut text.clone().into_bytes(), BytePosition::Beginning);
    requests.iter().map(look).collect()
}

#[test]
fn a_head_is_known_from_its_second_request_on() {
    let call = |length: usize| {
        format!(
            "{HEAD}Content-Length: {length}\r\n\r\n{}",
            "a".repeat(length)
        )
    };
    let calls: Vec<String> = [3, 4, 5, 1_000].map(call).into();
    assert_eq!(
        came(&calls),
        [
            HeadMatch::Unknown,
            HeadMatch::New,
            HeadMatch::Same,
            HeadMatch::Same
        ]
    );
    let other = call(3).replace("Host: a", "Host: b");
    let calls = [call(1), call(2), call(3), other.clone(), other, call(4)];
    let found = [
        HeadMatch::Unknown,
        HeadMatch::New,
        HeadMatch::Same,
        HeadMatch::New,
        HeadMatch::Same,
        HeadMatch::New,
    ];
    assert_eq!(came(&calls), found);
}

#[test]
fn behind_what_has_no_length_or_is_not_alone_nothing_is_known() {
    let call = format!("{HEAD}Content-Length: 3\r\n\r\nabc");
    for before in [
        format!("{HEAD}\r\n"),
        format!("{call}P"),
        format!("{HEAD}Content-Length: x\r\n\r\n"),
    ] {
        let calls = [call.clone(), call.clone(), before.clone(), call.clone()];
        assert_eq!(came(&calls).last(), Some(&HeadMatch::Unknown), "{before:?}");
    }
}

proptest! {
    #[test]
    fn a_head_that_is_known_is_followed_like_any_other(
        requests in prop::collection::vec((0_usize..8, 0_usize..200), 0..12),
    ) {
        let both = format!("{HEAD}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc");
        let one = format!("{HEAD}Content-Length: 3\r\n\r\nabc");
        let texts = [
            one.clone(),
            one.replace("3\r\n\r\nabc", "5\r\n\r\na\nbcd"),
            one.clone(),
            one.replace("Host: a", "Host: b"),
            format!("{one}{one}"),
            format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            format!("{one}{}", &both[..30]),
            both,
        ];
        let (mut knows, mut forgets) = (FramingGuard::default(), FramingGuard::default());
        for (text, cut) in requests {
            let text = &texts[text];
            let cut = cut.min(text.len());
            let head = text.find("\r\n\r\n").map_or(text.len(), |end| end + 4);
            for (piece, begins) in [(&text[..cut], 0), (&text[cut..], cut)] {
                let at = match begins {
                    0 => BytePosition::Beginning,
                    begins if begins < head => BytePosition::Head,
                    _ => BytePosition::Body,
                };
                let (mut one, mut other) = (piece.as_bytes().to_vec(), piece.as_bytes().to_vec());
                forgets.known = KnownHeads::default();
                knows.inspect(&mut one, at);
                forgets.inspect(&mut other, at);
                prop_assert_eq!(one, other);
                let state = |watch: &FramingGuard| {
                    (watch.read, watch.end, watch.body_end, watch.lost, watch.tail.as_slice().to_vec())
                };
                prop_assert_eq!(state(&knows), state(&forgets));
            }
        }
    }
}
