/** What makes the page yours. The colours are in index.css. */
export const BRAND = {
  /** The bot, as `namespace/name`. */
  bot: 'demo/echo',
  name: 'Acme Assistant',
  tagline: 'Ask about orders, deliveries and returns, and get an answer at once.',
  greeting: 'What can I do for you?',
  suggestions: [
    'Where is my parcel?',
    'How do I return something?',
    'Which plan fits five people?',
    'I want to talk with a human.',
  ],
} as const;
