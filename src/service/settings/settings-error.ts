/**
 * Thrown where a setting cannot be as it was asked for. The message is a plain sentence for an administrator; `field` is
 * what the setting is called in code, if it is one.
 */
export class SettingsError extends Error {
  readonly field: string | undefined;

  constructor(message: string, field?: string) {
    super(message);
    this.name = 'SettingsError';
    this.field = field;
  }
}
