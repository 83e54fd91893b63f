const PROTOCOLS = ['http:', 'https:', 'mailto:'];

/**
 * The address of a link in an answer, if it is a whole one that begins with `http:`, `https:` or `mailto:`; undefined for
 * every other one. The browser gets the address as it was parsed here.
 */
export function safeAddress(address: string): string | undefined {
  try {
    const { protocol, href } = new URL(address);
    return PROTOCOLS.includes(protocol) ? href : undefined;
  } catch {
    return undefined;
  }
}
