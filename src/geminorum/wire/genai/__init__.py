"""The Gemini API's requests and answers."""
