/** What a project says of one of its bots. */
export interface Bot {
  readonly namespace: string;
  readonly name: string;
  readonly title: string;
  /** What its model is told before each conversation. */
  readonly instructions: string;
  /** What a user may want to ask first. */
  readonly suggestions: readonly string[];
  /** Left to the model's provider if not given. */
  readonly temperature?: number;
  readonly tools: readonly 'clock'[];
  /** Whether it may search the documents of its project. */
  readonly usesKnowledge: boolean;
}
