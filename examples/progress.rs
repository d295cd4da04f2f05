//! A tool that reports its progress and returns an image.
//!
//! ```sh
//! cargo run --example progress
//! cargo test --example progress
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore::extract::Progress;
use longshore::protocol::MediaContent;
use longshore::{App, Content, ToolError, tool};

/// Draws a gradient as a bitmap, and reports each row.
#[tool(read_only)]
async fn gradient(
    #[call] progress: Progress,
    /// Width and height in pixels.
    #[schemars(range(min = 1, max = 256))]
    size: u8,
) -> Result<Vec<Content>, ToolError> {
    let size = u32::from(size);
    let mut pixels = Vec::new();
    for row in 0..size {
        for column in 0..size {
            let shade = |value: u32| (value * 255 / size) as u8;
            pixels.extend([shade(row), shade(column), 128]);
        }
        // Rows of a bitmap are multiples of 4 bytes.
        pixels.resize(pixels.len().next_multiple_of(4), 0);
        let done = f64::from(row + 1);
        progress
            .report(done, Some(f64::from(size)), "row drawn")
            .await;
    }
    Ok(vec![
        Content::text(format!("A gradient of {size} by {size} pixels")),
        Content::Image(MediaContent {
            data: STANDARD.encode(bitmap(size, &pixels)),
            mime_type: "image/bmp".to_owned(),
            ..MediaContent::default()
        }),
    ])
}

/// Returns a bitmap file with 24 bits for each pixel.
fn bitmap(size: u32, pixels: &[u8]) -> Vec<u8> {
    const HEADERS: u32 = 54;
    let length = pixels.len() as u32;
    let mut file = b"BM".to_vec();
    for word in [
        HEADERS + length,
        0,
        HEADERS,
        40,
        size,
        size,
        1 | 24 << 16,
        0,
    ] {
        file.extend(word.to_le_bytes());
    }
    for word in [length, 2835, 2835, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(pixels);
    file
}

fn main() -> longshore::Result {
    App::new().tool(gradient).run()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn progress_is_reported_and_the_image_is_complete() -> longshore::Result {
        let server = App::new().tool(gradient).harness()?;
        let result = server.call("gradient", json!({"size": 3})).await?;
        // Reports in quick succession are merged.
        let reports = result.progress();
        let last = reports.last().and_then(|report| report.message.as_deref());
        assert_eq!(last, Some("row drawn"));
        let image = &result.content()[1];
        assert_eq!(image["mimeType"], "image/bmp");
        let file = STANDARD.decode(image["data"].as_str().unwrap_or_default())?;
        assert_eq!(file.len(), 54 + 3 * 12);
        Ok(())
    }
}
