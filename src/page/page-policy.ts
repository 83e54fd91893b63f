/**
 * The policy of a page of the relay: files of its own origin only, images also from `images`, and text never turns into
 * code (W3C CSP 3, Trusted Types).
 */
export function pagePolicy(images: readonly string[] = []): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    ["img-src 'self'", ...images].join(' '),
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
}
