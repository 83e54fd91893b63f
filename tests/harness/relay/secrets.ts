/** Values that must never appear in a log or an answer; every test relay uses them. */
export const CANARY = {
  key: 'canary-api-key-5b1f0c',
  secondKey: 'canary-second-key-9d2e7a',
  sessionSecret: 'canary-session-secret-0123456789-abcdef',
  channelSecret: 'canary-channel-secret-9876543210-fedcba',
  password: 'canary-password-77aa',
  text: 'canary-message-text-c0ffee',
} as const;

export const USER = { name: 'ada', password: CANARY.password };
export const OTHER_USER = { name: 'bob', password: CANARY.password };
/** Its name does not fit into a header. */
export const LONG_NAMED_USER = { name: `zoë ${'z'.repeat(130)}`, password: CANARY.password };

/** The values that no answer may contain. The text is not among them, since a bot may repeat it. */
export const SECRETS = Object.values(CANARY).filter((value) => value !== CANARY.text);

/** Throws if `text` holds a value that must never be shown. */
export function expectNoCanary(text: string): void {
  for (const [name, canary] of Object.entries(CANARY)) {
    if (text.includes(canary)) throw new Error(`the canary "${name}" has shown in: ${text.slice(0, 2000)}`);
  }
}
