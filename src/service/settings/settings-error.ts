/** Thrown where a setting cannot be as it was asked for. The message is a plain sentence for an administrator. */
export class SettingsError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'SettingsError';
  }
}
