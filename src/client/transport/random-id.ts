/** 128 random bits. Browsers have `crypto.randomUUID` on https pages only. */
export function randomId(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join('-');
}
