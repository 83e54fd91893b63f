/** Lets one loop wait. A ring while it does not wait is not lost. */
export class Bell {
  private hasRung = false;
  private wake: (() => void) | undefined;

  ring(): void {
    this.hasRung = true;
    this.wake?.();
  }

  /** Resolves when it rings or has rung, or after `ms`. */
  async wait(ms: number): Promise<void> {
    if (!this.hasRung) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms).unref();
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.wake = undefined;
    this.hasRung = false;
  }
}

/** Who waits for news of which run. */
export class RunNews {
  private readonly bells = new Map<string, Set<Bell>>();

  add(news: string, bell: Bell): void {
    this.bells.set(news, (this.bells.get(news) ?? new Set()).add(bell));
  }

  remove(news: string, bell: Bell): void {
    const bells = this.bells.get(news);
    bells?.delete(bell);
    if (bells?.size === 0) this.bells.delete(news);
  }

  ring(news: string): void {
    for (const bell of this.bells.get(news) ?? []) bell.ring();
  }

  /** News may have been lost. */
  ringAll(): void {
    for (const news of this.bells.keys()) this.ring(news);
  }
}
