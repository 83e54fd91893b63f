/** Thrown where knowledge cannot be as it was asked for. The message is a plain sentence, with no provider's text. */
export class KnowledgeError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'KnowledgeError';
  }
}
