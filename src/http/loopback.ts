/** `localhost` and the loopback addresses (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3), in the form of a URL's `hostname`, or of a socket. */
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\]|::1)$/;

/** Whether data that is sent to this host stays on the machine. */
export function isLoopback(hostname: string): boolean {
  return LOOPBACK.test(hostname);
}
