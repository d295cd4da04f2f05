export function count(text) {
  return {
    characters: [...text].length,
    words: text.split(/\s+/u).filter(Boolean).length,
    lines: text.split("\n").length,
  };
}

export function slug(text, longest) {
  const plain = text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+/, "");
  const slug = plain.slice(0, longest ?? 80).replace(/-+$/, "");
  if (slug === "") throw "there is no letter or digit in it";
  return slug;
}
