// Lays out JSON over lines without changing a token: numbers, escapes and doubled names stay as they were written.

const INDENT = "  ";
/** Deeper levels are not moved further to the right, so that the text stays of the size of its value. */
const INDENT_LEVELS_MAX = 32;
const LEVELS_MAX = 1000;
const SPACE = /[ \t\n\r]*/y;
const SCALAR = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;

/** The text over lines; null when it is not JSON (RFC 8259), or is nested too deep to be read. */
export function laidOut(text) {
  const source = new Source(text);
  const out = [];
  const open = [];
  const newLine = () => out.push(`\n${INDENT.repeat(Math.min(open.length, INDENT_LEVELS_MAX))}`);
  for (;;) {
    // A value, after the name that it has in an object.
    if (open.at(-1) === "}") {
      const name = source.string();
      if (name === null || !source.skip(":")) return null;
      out.push(name, ": ");
    }
    const end = source.skip("{") ? "}" : source.skip("[") ? "]" : null;
    if (end !== null) {
      out.push(end === "}" ? "{" : "[");
      if (!source.skip(end)) {
        open.push(end);
        if (open.length > LEVELS_MAX) return null;
        newLine();
        continue;
      }
      out.push(end);
    } else {
      const token = source.string() ?? source.scalar();
      if (token === null) return null;
      out.push(token);
    }
    // The ends of what is complete with it, then a comma.
    while (open.length && source.skip(open.at(-1))) {
      const closed = open.pop();
      newLine();
      out.push(closed);
    }
    if (!open.length) return source.isAtEnd() ? out.join("") : null;
    if (!source.skip(",")) return null;
    out.push(",");
    newLine();
  }
}

class Source {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  /** Whether the next token is this character. Passes it. */
  skip(character) {
    this.matched(SPACE);
    const found = this.text[this.at] === character;
    if (found) this.at += 1;
    return found;
  }

  scalar() {
    this.matched(SPACE);
    return this.matched(SCALAR);
  }

  /** A string with its quotes, as it is written; null without one. */
  string() {
    this.matched(SPACE);
    const start = this.at;
    if (this.text[start] !== '"') return null;
    this.at += 1;
    do this.matched(PLAIN); while (this.matched(ESCAPE) !== null);
    if (this.text[this.at] !== '"') return null;
    this.at += 1;
    return this.text.slice(start, this.at);
  }

  isAtEnd() {
    this.matched(SPACE);
    return this.at === this.text.length;
  }

  matched(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found === null) return null;
    this.at = pattern.lastIndex;
    return found[0];
  }
}
