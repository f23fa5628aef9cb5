// Numbers, times and bytes as text.

/** Whole numbers that JavaScript cannot hold come as texts of digits. */
export const number = (value) => {
  if (value === null || value === undefined) return "–";
  return (/^-?\d+$/.test(value) ? BigInt(value) : value).toLocaleString("en-US");
};

const exact = (value) => (Number.isSafeInteger(Number(value)) ? Number(value) : String(value));

/** The difference of two offsets. */
export const minus = (a, b) => exact(BigInt(a) - BigInt(b));

export const below = (a, b) => BigInt(a) < BigInt(b);

/** `count` offsets before `offset`, and not before `start`. */
export const earlier = (offset, count, start) => (below(minus(offset, count), start) ? start : minus(offset, count));

export function duration(ms) {
  const left = Math.max(0, Math.round(ms));
  if (left < 1000) return `${left} ms`;
  if (left < 60_000) return `${(left / 1000).toFixed(1)} s`;
  const units = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];
  const parts = [];
  let rest = left;
  for (const [name, size] of units) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${name}`);
  }
  return parts.slice(0, 2).join(" ");
}

export function time(ms, fraction = false) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  return `${at.toISOString().slice(0, fraction ? 23 : 19).replace("T", " ")} UTC`;
}

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = "";
  for (const name of units) {
    if (value < 1024) break;
    value /= 1024;
    unit = name;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
}

export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** base64 -> bytes. */
export const unpacked = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Bytes as text; null when they are not UTF-8, but for a character that the listing has cut. */
export function textOf(data, isCut) {
  for (let cut = 0; cut <= (isCut ? 3 : 0); cut += 1) {
    try {
      return strict.decode(cut ? data.subarray(0, data.length - cut) : data);
    } catch { /* try without the last byte */ }
  }
  return null;
}

/** Control and bidi characters become visible escapes, so that a text cannot look like another one. */
export const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
  (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function hexOf(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = data.subarray(at, at + 16);
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = [...row].map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}
