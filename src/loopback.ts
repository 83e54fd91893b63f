const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];

/** Whether what is sent to this host stays on the machine. */
export function isLoopback(hostname: string): boolean {
  return LOOPBACK.includes(hostname);
}
