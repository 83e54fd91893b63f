/** `value` with `mask` put on all of its strings and names. To be used after parsing: an escape sequence hides nothing then. */
export function maskStrings(value: unknown, mask: (text: string) => string): unknown {
  if (typeof value === 'string') return mask(value);
  if (Array.isArray(value)) return value.map((item) => maskStrings(item, mask));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [mask(name), maskStrings(inner, mask)]),
  );
}
