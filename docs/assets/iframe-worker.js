// Browsers start no worker for a page from disk; there, a hidden frame runs the search instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      this.frame.addEventListener("load", () => this.start(url), { once: true });
      document.body.append(this.frame);
    }
    start(url) {
      const inside = this.frame.contentWindow;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location);
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach(data => this.postMessage(data));
      };
      inside.document.head.append(script);
    }
    postMessage(data) {
      if (!this.ready) return this.waiting.push(data);
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
