/** Applies `mask` to all strings and names in `value`. Use it after parsing, when escape sequences are decoded. */
export function maskStrings(value: unknown, mask: (text: string) => string): unknown {
  if (typeof value === 'string') return mask(value);
  if (Array.isArray(value)) return value.map((item) => maskStrings(item, mask));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [mask(name), maskStrings(inner, mask)]),
  );
}
