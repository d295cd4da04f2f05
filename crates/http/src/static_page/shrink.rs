//! Removes comments and white space from the page when it is first served, so that its source stays readable and no build
//! tool is needed.
//!
//! It knows as much of JavaScript as that takes: strings, template literals, regular expressions and comments. A line break is
//! kept wherever it could end a statement.

/// Shrinks the style and the script of a page, and the indentation of the rest.
pub(super) fn page(text: &str) -> String {
    let Some((before, rest)) = text.split_once("<style>") else {
        return text.to_owned();
    };
    let (Some((css, rest)), true) = (rest.split_once("</style>"), rest.contains("<script>")) else {
        return text.to_owned();
    };
    let (html, rest) = rest.split_once("<script>").unwrap_or_default();
    let (js, after) = rest.split_once("</script>").unwrap_or_default();
    format!(
        "{}<style>{}</style>{}<script>{}</script>{after}",
        lines(before),
        style(css),
        lines(html),
        script(js)
    )
}

/// Lines without their indentation.
fn lines(html: &str) -> String {
    let lines: Vec<_> = html.lines().map(str::trim).collect();
    lines.join("\n")
}

fn style(css: &str) -> String {
    let words: Vec<_> = css.split_whitespace().collect();
    let mut text = words.join(" ");
    for sign in ["{", "}", ";", ",", ">"] {
        text = text
            .replace(&format!(" {sign}"), sign)
            .replace(&format!("{sign} "), sign);
    }
    text.replace(": ", ":").replace(";}", "}")
}

fn script(js: &str) -> String {
    let text: Vec<char> = js.chars().collect();
    let mut out = String::with_capacity(js.len());
    let mut at = 0;
    while let Some(&c) = text.get(at) {
        let next = text.get(at + 1).copied();
        let end = match (c, next) {
            ('"' | '\'', _) => string_end(&text, at),
            ('`', _) => template_end(&text, at),
            ('/', Some('/')) => {
                at = position(&text, at, |c| c == '\n');
                continue;
            }
            ('/', Some('*')) => {
                at = comment_end(&text, at);
                continue;
            }
            ('/', _) if begins_expression(&out) => regex_end(&text, at),
            _ if c.is_whitespace() => {
                let end = position(&text, at, |c| !c.is_whitespace());
                let has_break = text[at..end].contains(&'\n');
                space(&mut out, text.get(end).copied(), has_break);
                at = end;
                continue;
            }
            _ => at + 1,
        };
        out.extend(&text[at..end]);
        at = end;
    }
    out
}

/// Writes what is needed of the white space between the text so far and the next character.
fn space(out: &mut String, next: Option<char>, has_break: bool) {
    let (Some(before), Some(after)) = (out.chars().next_back(), next) else {
        return;
    };
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '#');
    if has_break {
        let continues = "{,;([=>&|?:+\n".contains(before) || "})].?:&|".contains(after);
        if !continues {
            out.push('\n');
        }
        return;
    }
    let separates = is_word(after) && (is_word(before) || matches!(before, '`' | '"' | '\''));
    let is_doubled = before == after && matches!(before, '+' | '-');
    if separates || is_doubled {
        out.push(' ');
    }
}

/// Returns true if a slash begins a regular expression here, and is not a division.
fn begins_expression(out: &str) -> bool {
    let out = out.trim_end();
    out.ends_with("return") || out.ends_with(|c| "(,=:[!&|?{};+>".contains(c))
}

fn position(text: &[char], from: usize, is_wanted: impl Fn(char) -> bool) -> usize {
    let found = text[from..].iter().position(|c| is_wanted(*c));
    found.map_or(text.len(), |found| from + found)
}

fn comment_end(text: &[char], from: usize) -> usize {
    let pairs = text[from + 2..].windows(2);
    let found = pairs.into_iter().position(|pair| pair == ['*', '/']);
    found.map_or(text.len(), |found| from + found + 4)
}

/// Returns the end of a string, behind its closing quotation mark.
fn string_end(text: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while let Some(c) = text.get(at) {
        match c {
            '\\' => at += 2,
            c if *c == text[from] => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the end of a template literal, whose expressions may hold others.
fn template_end(text: &[char], from: usize) -> usize {
    let mut open = vec!['`'];
    let mut at = from + 1;
    while let Some(c) = text.get(at) {
        let in_text = open.last() == Some(&'`');
        match c {
            '\\' => at += 1,
            '`' if in_text => {
                open.pop();
            }
            '`' => open.push('`'),
            '$' if in_text && text.get(at + 1) == Some(&'{') => {
                open.push('{');
                at += 1;
            }
            '{' if !in_text => open.push('{'),
            '}' if !in_text => {
                open.pop();
            }
            '"' | '\'' if !in_text => at = string_end(text, at) - 1,
            _ => {}
        }
        at += 1;
        if open.is_empty() {
            return at;
        }
    }
    text.len()
}

/// Returns the end of a regular expression, with its flags.
fn regex_end(text: &[char], from: usize) -> usize {
    let mut at = from + 1;
    let mut in_class = false;
    while let Some(c) = text.get(at) {
        match c {
            '\\' => at += 1,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return position(text, at + 1, |c| !c.is_alphabetic()),
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_spaces_go_and_texts_stay() {
        for (source, shrunk) in [
            (
                "const a = 1;\n  // told\n  let b = a + 2;",
                "const a=1;let b=a+2;",
            ),
            ("a /* b */ = \"c // d  e\";", "a=\"c // d  e\";"),
            (
                "x = `a  ${b ? `c  ${\"}\"}` : 1}  d` + 1",
                "x=`a  ${b ? `c  ${\"}\"}` : 1}  d`+1",
            ),
            (
                "if (/[/\"]\\/ x/g.test(a)) b / c / d",
                "if(/[/\"]\\/ x/g.test(a))b/c/d",
            ),
            ("return /a b/;", "return/a b/;"),
            ("a + +b - -c", "a+ +b- -c"),
            ("a\n(b)", "a\n(b)"),
            ("a = {\n  b,\n}\nc()", "a={b,}\nc()"),
            ("f(\n  a,\n  b\n)\n  .c()", "f(a,b).c()"),
            ("case \"a\": return in_b;", "case\"a\":return in_b;"),
            ("x = 'it\\'s' in y", "x='it\\'s' in y"),
        ] {
            assert_eq!(script(source), shrunk, "{source}");
        }
    }

    #[test]
    fn styles_and_lines_are_shortened() {
        assert_eq!(
            style("a > b , c { d: e(1px 2px) ; }\n f:hover { g: h; }"),
            "a>b,c{d:e(1px 2px)}f:hover{g:h}"
        );
        let page = page(
            "<p>\n  a\n<style> a { b: c; } </style>\n  <b>\n<script>\n let a = 1;\n</script>\n</html>",
        );
        assert_eq!(
            page,
            "<p>\na<style>a{b:c}</style>\n<b><script>let a=1;</script>\n</html>"
        );
    }
}
