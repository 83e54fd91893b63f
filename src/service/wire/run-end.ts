import type { Brain, RunError } from '../brains/steps.ts';
import { type EventSource, eventText } from '../store/bot-event.ts';

/** The event that ends a run: that it is done, or its error. */
export function runEndText(source: EventSource, { hasSandbox }: Brain, error: RunError | undefined): string {
  if (!error) return eventText('asgard.run.done', { source, fact: { runDone: {} } });
  const { namespace, botProviderName: name } = source;
  const at = hasSandbox
    ? { workflowName: 'demo', processorName: 'answer', processorType: 'DEMO' }
    : { workflowName: name, processorName: name, processorType: 'MODEL' };
  const fact = { runError: { error: { ...error, inner: '', location: { namespace, ...at } } } };
  return eventText('asgard.run.error', { source, fact });
}
