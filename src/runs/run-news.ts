/** Lets one loop wait until it is woken. If it is woken while it does not wait, its next wait ends at once. */
export class Waker {
  private isWoken = false;
  private endWait: (() => void) | undefined;

  wake(): void {
    this.isWoken = true;
    this.endWait?.();
  }

  /** Resolves when the loop is woken, or after `ms`. */
  async wait(ms: number): Promise<void> {
    if (!this.isWoken) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms).unref();
        this.endWait = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.endWait = undefined;
    this.isWoken = false;
  }
}

/** Which loops are woken by news of which run. */
export class RunNews {
  private readonly wakers = new Map<string, Set<Waker>>();

  add(news: string, waker: Waker): void {
    this.wakers.set(news, (this.wakers.get(news) ?? new Set()).add(waker));
  }

  remove(news: string, waker: Waker): void {
    const wakers = this.wakers.get(news);
    wakers?.delete(waker);
    if (wakers?.size === 0) this.wakers.delete(news);
  }

  wake(news: string): void {
    for (const waker of this.wakers.get(news) ?? []) waker.wake();
  }

  /** Wakes all loops, since news may have been lost. */
  wakeAll(): void {
    for (const news of this.wakers.keys()) this.wake(news);
  }
}
