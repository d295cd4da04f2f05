//! Key rings: encryption, signatures and MACs.

use std::cell::RefCell;
use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{KeyError, SealConfig};
use crate::environment::SAMPLES;

/// The secret that seals, and older ones that still open.
///
/// AES-256-GCM-SIV: a nonce that is drawn twice by accident gives away only that two texts were equal.
pub struct KeyRing {
    /// The first one seals.
    keys: Vec<Key>,
    shared: bool,
}

struct Key {
    /// Names the key in what it sealed.
    id: [u8; KEY_ID_LEN],
    aead: LessSafeKey,
    mac: hmac::Key,
}

/// Purpose of a sealed text and the endpoint that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Purpose<'a> {
    /// Kind of thing, with the version of its layout.
    pub kind: &'static str,
    pub endpoint: &'a str,
}

const FORMAT: u8 = 1;
const KEY_ID_LEN: usize = 4;
const HEADER_LEN: usize = 1 + KEY_ID_LEN + NONCE_LEN;
const TAG_LEN: usize = 16;
/// Bytes of a MAC that are kept.
const MAC_LEN: usize = 16;

impl KeyRing {
    /// Keys from configuration, or a random one if it names none.
    ///
    /// # Errors
    ///
    /// A secret that is too short.
    pub fn new(config: &SealConfig) -> Result<Self, KeyError> {
        if config.keys.is_empty() {
            return Ok(Self::random());
        }
        let mut keys = Vec::with_capacity(config.keys.len());
        for (index, secret) in config.keys.iter().enumerate() {
            let bytes = secret.expose().len();
            if bytes < 32 {
                return Err(KeyError::TooShort { index, bytes });
            }
            if SAMPLES.contains(&secret.expose()) {
                return Err(KeyError::Sample { index });
            }
            keys.push(Key::derive(secret.expose().as_bytes()));
        }
        Ok(Self { keys, shared: true })
    }

    /// Creates a ring with one random key.
    pub fn random() -> Self {
        Self {
            keys: vec![Key::derive(&random_bytes::<32>())],
            shared: false,
        }
    }

    /// Returns true if other replicas may hold the same keys.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Encrypts and authenticates; the result is visible ASCII.
    pub fn seal(&self, purpose: Purpose<'_>, plain: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.keys[0].seal(random_bytes(), purpose, plain))
    }

    /// Undoes [`seal`](Self::seal). `None` if it was sealed for something else, by an unknown key, or tampered with.
    pub fn open(&self, purpose: Purpose<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        self.open_bytes(purpose, &sealed)
    }

    fn open_bytes(&self, purpose: Purpose<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let (format, rest) = sealed.split_first()?;
        let (id, rest) = rest.split_first_chunk::<KEY_ID_LEN>()?;
        let (nonce, body) = rest.split_first_chunk::<NONCE_LEN>()?;
        let key = self.keys.iter().find(|key| key.id == *id)?;
        let mut body = body.to_vec();
        let plain = key.aead.open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from(purpose.bytes()),
            &mut body,
        );
        let length = plain.ok()?.len();
        body.truncate(length);
        (*format == FORMAT).then_some(body)
    }

    /// Encrypts and authenticates what lies at a place of a store. The same content at the same place comes out the
    /// same, so that it can be compared there; that it is equal is all that this gives away.
    pub(crate) fn seal_stored(&self, place: &str, plain: &[u8]) -> Vec<u8> {
        self.keys[0].seal_stored(place, plain)
    }

    /// Returns the result of [`seal_stored`](Self::seal_stored) with each key, the newest first.
    pub(crate) fn seal_stored_by_each(
        &self,
        place: &str,
        plain: &[u8],
    ) -> impl Iterator<Item = Vec<u8>> + Send {
        self.keys
            .iter()
            .map(move |key| key.seal_stored(place, plain))
    }

    /// Undoes [`seal_stored`](Self::seal_stored). `None` if it was sealed for another place, by an unknown key, or
    /// tampered with.
    pub(crate) fn open_stored(&self, place: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        self.open_bytes(stored_at(place), sealed)
    }

    /// Derives a secret of 32 bytes from each key for a purpose, the newest key first.
    pub fn seeds(&self, kind: &'static str) -> impl Iterator<Item = [u8; 32]> + '_ {
        let purpose = Purpose {
            kind,
            endpoint: "seed",
        };
        self.keys.iter().map(move |key| {
            let mut seed = [0; 32];
            seed[..MAC_LEN].copy_from_slice(&key.mac(purpose, b"0"));
            seed[MAC_LEN..].copy_from_slice(&key.mac(purpose, b"1"));
            seed
        })
    }

    /// Returns a number that depends on the first key and the purpose, and is unpredictable without the key.
    pub fn number(&self, kind: &'static str) -> u64 {
        let mac = self.keys[0].mac(Purpose { kind, endpoint: "" }, b"number");
        let (number, _) = mac.split_first_chunk().unwrap_or((&[0; 8], &[]));
        u64::from_le_bytes(*number)
    }

    /// MAC of a text that is kept elsewhere.
    pub fn tag(&self, purpose: Purpose<'_>, text: &[u8]) -> [u8; MAC_LEN] {
        self.keys[0].mac(purpose, text)
    }

    /// Returns true if this ring made the MAC for this text and purpose.
    pub fn is_tag(&self, purpose: Purpose<'_>, text: &[u8], tag: &[u8]) -> bool {
        let is_made_by = |key: &Key| {
            aws_lc_rs::constant_time::verify_slices_are_equal(tag, &key.mac(purpose, text)).is_ok()
        };
        self.keys.iter().any(is_made_by)
    }

    /// Signs a public text; the result is visible ASCII.
    pub fn sign(&self, purpose: Purpose<'_>, text: &[u8]) -> String {
        let key = &self.keys[0];
        let mut signed = Vec::with_capacity(1 + KEY_ID_LEN + MAC_LEN + text.len());
        signed.push(FORMAT);
        signed.extend_from_slice(&key.id);
        signed.extend_from_slice(&key.mac(purpose, text));
        signed.extend_from_slice(text);
        URL_SAFE_NO_PAD.encode(signed)
    }

    /// Undoes [`sign`](Self::sign). `None` if it is not something this ring has signed for the purpose.
    pub fn verify(&self, purpose: Purpose<'_>, signed: &[u8]) -> Option<Vec<u8>> {
        let signed = URL_SAFE_NO_PAD.decode(signed).ok()?;
        let (format, rest) = signed.split_first()?;
        let (id, rest) = rest.split_first_chunk::<KEY_ID_LEN>()?;
        let (mac, text) = rest.split_first_chunk::<MAC_LEN>()?;
        let key = self.keys.iter().find(|key| key.id == *id)?;
        let good = aws_lc_rs::constant_time::verify_slices_are_equal(mac, &key.mac(purpose, text));
        (*format == FORMAT && good.is_ok()).then(|| text.to_vec())
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing")
            .field("keys", &self.keys.len())
            .field("shared", &self.shared)
            .finish()
    }
}

impl Key {
    fn derive(secret: &[u8]) -> Self {
        let root = Salt::new(HKDF_SHA256, b"longshore seal").extract(secret);
        let expand = |info: &'static [u8]| {
            let mut bytes = [0; 32];
            let filled = root
                .expand(&[info], HKDF_SHA256)
                .and_then(|okm| okm.fill(&mut bytes));
            assert!(filled.is_ok(), "HKDF-SHA256 derives 32 bytes");
            bytes
        };
        let Ok(aead) = UnboundKey::new(&AES_256_GCM_SIV, &expand(b"aead")) else {
            unreachable!("an AES-256 key has 32 bytes");
        };
        let mut id = [0; KEY_ID_LEN];
        id.copy_from_slice(&expand(b"id")[..KEY_ID_LEN]);
        Self {
            id,
            aead: LessSafeKey::new(aead),
            mac: hmac::Key::new(hmac::HMAC_SHA256, &expand(b"mac")),
        }
    }

    fn seal_stored(&self, place: &str, plain: &[u8]) -> Vec<u8> {
        let purpose = stored_at(place);
        // The nonce derives from the content, because stores compare sealed texts. AES-GCM-SIV tolerates equal
        // nonces, and they are equal only for equal texts.
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&self.mac(purpose, plain)[..NONCE_LEN]);
        self.seal(nonce, purpose, plain)
    }

    fn seal(&self, nonce: [u8; NONCE_LEN], purpose: Purpose<'_>, plain: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(HEADER_LEN + plain.len() + TAG_LEN);
        sealed.push(FORMAT);
        sealed.extend_from_slice(&self.id);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let tag = self.aead.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(purpose.bytes()),
            &mut sealed[HEADER_LEN..],
        );
        match tag {
            Ok(tag) => sealed.extend_from_slice(tag.as_ref()),
            Err(_) => unreachable!("AES-GCM-SIV rejects only texts of 2^36 bytes"),
        }
        sealed
    }

    fn mac(&self, purpose: Purpose<'_>, text: &[u8]) -> [u8; MAC_LEN] {
        let mut context = hmac::Context::with_key(&self.mac);
        context.update(&purpose.bytes());
        context.update(&[0]);
        context.update(text);
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&context.sign().as_ref()[..MAC_LEN]);
        mac
    }
}

impl Purpose<'_> {
    fn bytes(&self) -> Vec<u8> {
        [self.kind.as_bytes(), &[0], self.endpoint.as_bytes()].concat()
    }
}

/// Purpose of what lies at a place of a store.
fn stored_at(place: &str) -> Purpose<'_> {
    Purpose {
        kind: "stored-1",
        endpoint: place,
    }
}

/// Random bytes from the operating system. The cryptographic library's own generator collects timing jitter at its
/// first use, which takes longer than the rest of the start.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    thread_local! {
        static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn::NOTHING) };
    }
    DRAWN.with_borrow_mut(|drawn| drawn.take())
}

/// Unused random bytes: each draw is a system call, so several are drawn at a time.
struct Drawn {
    bytes: [u8; DRAWN_BYTES],
    left: usize,
}

const DRAWN_BYTES: usize = 256;

impl Drawn {
    const NOTHING: Self = Self {
        bytes: [0; DRAWN_BYTES],
        left: 0,
    };

    /// Gives out bytes, and keeps no copy of them.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        const { assert!(N <= DRAWN_BYTES) };
        if self.left < N {
            assert!(
                getrandom::fill(&mut self.bytes).is_ok(),
                "the system has no randomness"
            );
            self.left = DRAWN_BYTES;
        }
        let (_, given) = self.bytes[..self.left].split_at_mut(self.left - N);
        let mut out = [0; N];
        out.copy_from_slice(given);
        given.fill(0);
        self.left -= N;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::Secret;

    const HERE: Purpose<'static> = Purpose {
        kind: "test",
        endpoint: "mcp",
    };

    fn ring(secrets: &[&str]) -> KeyRing {
        let keys = secrets
            .iter()
            .map(|s| Secret::from((*s).repeat(32)))
            .collect();
        KeyRing::new(&SealConfig { keys }).expect("long enough")
    }

    #[test]
    fn another_replica_opens_what_was_sealed_here() {
        let sealed = ring(&["a"]).seal(HERE, b"text");
        assert!(sealed.bytes().all(|b| (0x21..=0x7e).contains(&b)));
        assert_eq!(
            ring(&["a"]).open(HERE, sealed.as_bytes()).as_deref(),
            Some(&b"text"[..])
        );
        assert_eq!(
            ring(&["b", "a"]).open(HERE, sealed.as_bytes()).as_deref(),
            Some(&b"text"[..])
        );
        assert_eq!(ring(&["b"]).open(HERE, sealed.as_bytes()), None);
    }

    #[test]
    fn a_number_follows_from_the_first_key_and_the_purpose() {
        let number = ring(&["a", "b"]).number("one");
        assert_eq!(number, ring(&["a"]).number("one"));
        assert_ne!(number, ring(&["b", "a"]).number("one"));
        assert_ne!(number, ring(&["a"]).number("two"));
    }

    #[test]
    fn a_seal_is_good_for_its_purpose_and_endpoint_only() {
        let keys = ring(&["a"]);
        let (sealed, signed) = (keys.seal(HERE, b"text"), keys.sign(HERE, b"text"));
        for other in [
            Purpose {
                endpoint: "other",
                ..HERE
            },
            Purpose {
                kind: "tes",
                endpoint: "tmcp",
            },
        ] {
            assert_eq!(keys.open(other, sealed.as_bytes()), None);
            assert_eq!(keys.verify(other, signed.as_bytes()), None);
        }
        assert_eq!(
            keys.verify(HERE, signed.as_bytes()).as_deref(),
            Some(&b"text"[..])
        );
        assert_eq!(keys.verify(HERE, sealed.as_bytes()), None);
        assert_eq!(keys.open(HERE, signed.as_bytes()), None);
    }

    #[test]
    fn nothing_that_was_tampered_with_opens() {
        let keys = ring(&["a"]);
        for good in [keys.seal(HERE, b"text"), keys.sign(HERE, b"text")] {
            let bytes = URL_SAFE_NO_PAD.decode(&good).expect("base64");
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut bad = bytes.clone();
                    bad[at] ^= 1 << bit;
                    let bad = URL_SAFE_NO_PAD.encode(bad);
                    assert_eq!(keys.open(HERE, bad.as_bytes()), None);
                    assert_eq!(keys.verify(HERE, bad.as_bytes()), None);
                }
            }
            for end in 0..good.len() {
                assert_eq!(keys.open(HERE, &good.as_bytes()[..end]), None);
                assert_eq!(keys.verify(HERE, &good.as_bytes()[..end]), None);
            }
        }
    }

    #[test]
    fn random_bytes_are_given_out_once_and_not_kept() {
        let mut drawn = Drawn::NOTHING;
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            assert!(seen.insert(drawn.take::<12>()));
            assert!(drawn.bytes[drawn.left..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn short_keys_are_refused_and_none_is_shown() {
        let config = SealConfig {
            keys: vec![Secret::from("swordfish".to_owned())],
        };
        assert_eq!(
            KeyRing::new(&config).err(),
            Some(KeyError::TooShort { index: 0, bytes: 9 })
        );
        assert!(!format!("{config:?} {:?}", ring(&["swordfish"])).contains("swordfish"));
    }

    #[test]
    fn sample_secrets_of_the_documentation_are_rejected_as_seal_keys() {
        for sample in SAMPLES {
            let config = SealConfig {
                keys: vec![Secret::from(sample.to_owned())],
            };
            let error = KeyRing::new(&config).err();
            assert!(
                matches!(
                    error,
                    Some(KeyError::Sample { index: 0 } | KeyError::TooShort { .. })
                ),
                "{error:?}"
            );
        }
    }
}
