/* Search runs in a web worker, and browsers refuse to start one for a page that was opened from
   file://. This replacement runs the worker's script in a hidden frame of the page instead; pages
   that come from a server keep the real one. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this._frame = document.createElement("iframe")
      this._frame.hidden = true
      document.body.append(this._frame)
      const page = this._frame.contentDocument
      page.open()
      page.write("<!doctype html><html><body></body></html>")
      page.close()
      const inside = this._frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) => urls.reduce(
        (before, each) => before.then(() => load(page, each)), Promise.resolve())
      this._ready = load(page, url)
    }

    postMessage(data) {
      this._ready.then(() =>
        this._frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this._frame.remove()
    }
  }
  window.Worker = window.IFrameWorker

  function load(page, url) {
    return new Promise((resolve, reject) => {
      const script = page.createElement("script")
      script.src = url
      script.onload = resolve
      script.onerror = reject
      page.body.append(script)
    })
  }
}
